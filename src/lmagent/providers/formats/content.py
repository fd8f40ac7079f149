"""Content: the text for the user, assembled while the reply is read.

Text on both sides of removed markup is joined by a blank line, or by a blank inside a line. Blanks at the end are held
back until more text follows; a text without removals keeps them.
"""

from __future__ import annotations

_LINE = 300


class Content:
    """Collects the visible text; `last` is its end."""

    def __init__(self) -> None:
        self.last = ""
        self._pieces: list[str] = []
        self._blank = ""
        self._gap = False
        self._whole = True

    @property
    def empty(self) -> bool:
        """Whether no text is visible yet."""
        return not self._pieces

    @property
    def gapped(self) -> bool:
        """Whether markup was removed directly before this place."""
        return self._gap

    def add(self, text: str) -> None:
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
        """Note that markup was removed here."""
        self._gap, self._whole = True, False

    def forget(self) -> str:
        """Remove all text so far, which was thought, and return it."""
        thought = "".join(self._pieces)
        self._pieces.clear()
        self._blank = self.last = ""
        self.gap()
        return thought

    def whole(self) -> str:
        """Return the complete text, at the end."""
        return "".join(self._pieces) + (self._blank if self._whole else "")
