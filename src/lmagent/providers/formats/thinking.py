"""Thinking: takes the thoughts out of a text that is being read."""

from __future__ import annotations

import re
from bisect import bisect_left

from lmagent.providers.formats.base import Call, More, Toolset
from lmagent.providers.formats.place import Place
from lmagent.providers.formats.reading import Reading
from lmagent.providers.formats.thoughts import Pairing, quoted, unopened

_WINDOW = 2000
_GOES_ON = re.compile(r" [a-z]")


class Thinking(Reading):
    """What was found up to a place: thoughts, and the calls that are none.

    Attributes:
        thoughts: the thoughts, in order.
        calls: the calls, in order.
    """

    def __init__(self, tools: Toolset) -> None:
        super().__init__(tools)
        self.thoughts: list[str] = []
        self.calls: list[Call] = []
        self._pairing = Pairing("", final=False)
        self._closed_thoughts = False
        self._since_thought = 0
        self._doubt = False
        self._unopened: list[tuple[int, int]] | None = None

    def _open_thought(self, word: str, end: int) -> None:
        if quoted(self._text, self._at, end):
            self._say(end)
            return
        before = self._before(self._at)
        joined = bool(before.strip()) and not Place.ended(before)
        close, behind = self._pairing.closing(self._at, word)
        if close < 0 and joined and self._line_goes_on(end):
            self._say(end)  # a mention
            return
        if close >= 0 and joined and "\n" not in self._text[end:close]:
            self._say(behind)
            return
        self._note(self._text[end:] if close < 0 else self._text[end:close])
        self._drop(behind if close >= 0 else len(self._text))
        self._closed_thoughts, self._since_thought, self._said_since = True, len(self.calls), False

    def _line_goes_on(self, at: int) -> bool:
        line = self._text.find("\n", at, at + _WINDOW)
        return bool(self._text[at : line if line >= 0 else at + _WINDOW].strip())

    def _close_thought(self, end: int) -> None:
        """A closing tag that nothing opened: the template did, and all before it is thought.

        Behind a thought that was closed properly it is a leftover, unless there are calls between the two.
        """
        between = len(self.calls) > self._since_thought
        if not between and self._mentioned(end):
            self._say(end)
            return
        if self._closed_thoughts and not between:
            if self._said_since and not self._place(self._at, end).at_an_edge():
                self._say(end)
                return
            self._drop(end)
            return
        thought = self.content.forget()
        del self.calls[self._since_thought if self._closed_thoughts else 0 :]
        self._doubt = self._source.spilled = False
        self._note(thought)
        self._drop(end)
        self._closed_thoughts, self._since_thought, self._said_since = True, len(self.calls), False

    def _is_thought(self) -> bool:
        """Whether what would end the reply stands in a thought that the template opened; it is taken for one then."""
        if not self._source.final or self._closed_thoughts:
            return False
        if self._unopened is None:
            self._unopened = unopened(self._text)
        number = bisect_left(self._unopened, (self._at, 0))
        if number >= len(self._unopened):
            return False
        begin, end = self._unopened[number]
        self._say(begin)
        self._close_thought(end)
        return True

    def _mentioned(self, end: int) -> bool:
        """Whether a closing tag is a word of a sentence."""
        before = self._before(self._at)
        if not before.strip() or Place.ended(before) or before[-1:] != " ":
            return False
        if end + 2 > len(self._text) and not self._source.final:
            raise More
        return bool(_GOES_ON.match(self._text, end))

    def _note(self, thought: str) -> None:
        if thought.strip():
            self.thoughts.append(thought.strip())
