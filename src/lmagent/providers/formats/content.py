"""Content: the text for the user, put together as the reply is read.

Where markup was taken out, the rest is joined by a blank line, or by a blank where the markup was inside a line. Blanks
at the end are held back until something follows them; a text from which nothing was taken keeps them.
"""

from __future__ import annotations

_LINE = 300


class Content:
    """Collects the text to show.

    Attributes:
        last: the end of it.
    """

    def __init__(self) -> None:
        self.last = ""
        self._pieces: list[str] = []
        self._blank = ""
        self._gap = False
        self._whole = True

    @property
    def empty(self) -> bool:
        """Whether nothing is shown yet."""
        return not self._pieces

    @property
    def gapped(self) -> bool:
        """Whether something was taken out directly before this place."""
        return self._gap

    def add(self, text: str) -> None:
        """Take text."""
        if self._gap:
            bare = text.lstrip()
            if not bare:
                self._blank += text
                return
            lead = self._blank + text[: len(text) - len(bare)]
            self._blank = "" if not self._pieces else "\n\n" if "\n" in lead or not lead else " "
            text, self._gap = bare, False
        body = text.rstrip()
        if body:
            piece = self._blank + body
            self._pieces.append(piece)
            self.last = (self.last + piece[-_LINE:])[-_LINE:]
            self._blank = text[len(body) :]
        else:
            self._blank += text

    def gap(self) -> None:
        """Something was taken out here."""
        self._gap, self._whole = True, False

    def forget(self) -> str:
        """All so far was thought: returns it."""
        thought = "".join(self._pieces)
        self._pieces.clear()
        self._blank = self.last = ""
        self.gap()
        return thought

    def take(self) -> str:
        """What has come since this was asked last; only for a stream."""
        shown = "".join(self._pieces)
        self._pieces[:] = [""] if self._pieces else []
        return shown

    def whole(self) -> str:
        """Everything, at the end."""
        return "".join(self._pieces) + (self._blank if self._whole else "")
