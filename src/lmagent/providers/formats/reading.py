"""Reading: a place in a text, the line around it, and the text to show from before it."""

from __future__ import annotations

from lmagent.providers.formats.base import Source, Toolset
from lmagent.providers.formats.content import Content
from lmagent.providers.formats.place import Place

_CONTEXT = 450
"""Characters before the place that are kept: what stands before markup in its line decides what it is."""


class Reading:
    """What is known of the text up to a place.

    Attributes:
        content: the text to show.
    """

    def __init__(self, tools: Toolset) -> None:
        self.content = Content()
        self._tools = tools
        self._text = ""
        self._source = Source("", tools, final=False)
        self._at = 0
        self._line = 0
        self._lead = ""
        self._fresh = True
        self._said_since = False

    @property
    def waiting(self) -> int:
        """How many characters are held back."""
        return len(self._text) - self._at

    def trim(self) -> int:
        """Forget text that nothing depends on any more; returns how much."""
        cut = max(0, self._at - _CONTEXT)
        if cut > self._line:
            self._lead = (self._lead + self._text[self._line : self._line + 40])[:40]
        self._at -= cut
        self._line = max(0, self._line - cut)
        return cut

    def _say(self, end: int) -> None:
        """The text up to `end` is text."""
        if end <= self._at:
            return
        piece = self._text[self._at : end]
        self.content.add(piece)
        line = self._text.rfind("\n", self._at, end)
        if line >= 0:
            self._line, self._lead, self._fresh = line + 1, "", False
        elif piece.strip():
            self._fresh = False
        self._said_since = self._said_since or bool(piece.strip())
        self._at = end

    def _drop(self, end: int) -> None:
        """What stands here is markup; behind it a line begins."""
        self.content.gap()
        self._at = self._line = end
        self._lead, self._fresh = "", True

    def _before(self, at: int) -> str:
        """What stands before `at` in its line: its beginning and its end."""
        line = self._text[self._line : min(self._line + 40, at)]
        if at - self._line > 40:
            line += self._text[max(self._line + 40, at - 200) : at]
        return self._lead + line

    def _place(self, begin: int, end: int) -> Place:
        return Place(self._source, self._before(begin), end, self.content.last)

    def _apart(self) -> bool:
        """Whether nothing stands before this place in its line that it could belong to."""
        return Place.ended(self._before(self._at)) and self._before(self._at)[-1:] not in tuple("\"'`([")
