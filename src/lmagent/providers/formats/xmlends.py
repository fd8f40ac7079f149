"""Where a value in XML ends, when nothing in it is escaped.

A value may hold closing tags, opening tags and whole calls of its own format: a file about the format is written with
calls like any other. So tags are read as brackets first; only where that finds no end, tags in the middle of a line
count as words, and only then a closing tag counts as forgotten. What stands behind the call has its say: closing tags
that no call opened are the rest of a value that was ended too early.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Collection, Iterator
from typing import NamedTuple

from lmagent.providers.formats.base import Source, Toolset

_LOST, _WEAK, _STRONG = 0, 1, 2
_SHARE = 4
_BLANK = re.compile(r"\s*")
_NEXT = re.compile(r"<(?:tool_call|function_calls|minimax:tool_call|seed:tool_call)>")


class Tags(NamedTuple):
    """The tags of a format.

    Attributes:
        call: opens a call; group `name`.
        call_end: closes it.
        value: opens an argument; group `key`, and group `text` ("true" or "false") where the format tells strings.
        value_end: closes it.
        over: what may stand behind the last call.
        event: any of them, for values that hold calls themselves.
    """

    call: re.Pattern[str]
    call_end: re.Pattern[str]
    value: re.Pattern[str]
    value_end: re.Pattern[str]
    over: re.Pattern[str]
    event: re.Pattern[str]


class End(NamedTuple):
    """Where a value ends.

    Attributes:
        at: its end.
        behind: the place behind its closing tag.
        sure: it ends at its own closing tag, with every other tag paired.
    """

    at: int
    behind: int
    sure: bool


class Unclear(Exception):
    """Closing tags follow that belong to the value, or to nothing: where it ends cannot be told."""


class _Event(NamedTuple):
    kind: str
    start: int
    end: int
    begins: bool
    goes_on: bool
    """Of a value's closing tag: the call goes on or ends behind it."""
    closes: int
    """Of a call's closing tag: how much speaks for a call's end there."""
    key: str


class Ends:
    """The tags in a text from one place on, and what they close."""

    def __init__(self, source: Source, style: Tags, at: int) -> None:
        self._text = source.text
        self._budget = len(source.text) // _SHARE + 20_000
        self._events = list(_events(source.text, style, at))
        self._starts = [event.start for event in self._events]
        self._near, self._far = self._orphans()
        self._known: Collection[str] = ()

    def find(self, at: int, taken: Collection[str], tools: Toolset, name: str) -> End | None:
        """Where the value that begins at `at` ends; None if it does not.

        Args:
            at: its beginning.
            taken: the arguments that the call has so far, this one included.
            tools: the tools of the request.
            name: the tool.

        Raises:
            Unclear: it may end at more than one place.
        """
        self._spend(0, 0)
        first = bisect_left(self._starts, at)
        # Where a value begins on a line of its own, its closing tag does, too: that is the template of most models.
        apart = self._text.startswith(("\n", "\r\n"), at)
        own = bool(first) and self._events[first - 1].begins
        self._known = tools.properties(name) if own else ()
        for words, lines in (
            ((False, True), (False, False), (True, False)) if apart else ((False, False), (True, False))
        ):
            if (found := self._paired(first, taken, words=words, lines=lines)) is not None:
                event = self._events[found]
                return End(event.start, event.end, not words)
        return self._forgotten(at, first, taken, tools.properties(name))

    def orphaned(self, at: int) -> bool:
        """Whether tags that close a call follow, but no call that they close."""
        last = bisect_left(self._starts, at) - 1
        return max(self._near[last + 1], self._far[last + 1]) > _LOST

    def _spend(self, first: int, last: int) -> None:
        self._budget -= last - first
        if self._budget < 0:
            raise Unclear

    def _paired(self, first: int, taken: Collection[str], *, words: bool, lines: bool) -> int | None:
        """The closing tag that no tag in the value opens.

        Args:
            first: the first tag in the value.
            taken: the arguments so far.
            words: tags inside a line open nothing.
            lines: tags inside a line end nothing.
        """
        stack: list[str] = []
        for number in range(first, len(self._events)):
            event = self._events[number]
            opens = event.begins or not words
            if event.kind == "co":
                stack += ["c"] if opens else []
            elif event.kind == "vo":
                stack += ["v"] if opens else []
            elif event.kind == "ce":
                if "c" in stack:
                    while stack.pop() != "c":
                        pass
            elif stack:
                stack[-1:] = [] if stack[-1] == "v" else ["c"]
            elif (event.begins or not lines) and self._may_end(number, taken):
                return number
        self._spend(first, len(self._events))
        return None

    def _may_end(self, number: int, taken: Collection[str]) -> bool:
        event = self._events[number]
        if not event.goes_on:
            return False
        following = self._events[number + 1] if number + 1 < len(self._events) else None
        following = following if following is not None and self._adjacent(event, following) else None
        if following is not None and following.kind == "vo":
            if following.key in taken:
                return False  # the same argument twice: both tags are part of the value
            return following.begins or not self._known or following.key in self._known
        if following is not None and following.kind == "co" and not self._begins_call(number + 1):
            return False
        behind = number + 1 + (following is not None and following.kind == "ce")
        near, far = self._near[behind], self._far[behind]
        if following is not None and following.closes == _STRONG:
            if max(near, far) == _STRONG:
                raise Unclear
            return True
        if near == _STRONG:
            return False  # this one stands in the middle of the value
        if max(near, far):
            raise Unclear
        return True

    def _begins_call(self, number: int) -> bool:
        """Whether a tag that opens a call is followed by an argument, or by its end."""
        event = self._events[number]
        following = self._events[number + 1] if number + 1 < len(self._events) else None
        if following is not None and following.kind in ("vo", "ce") and self._adjacent(event, following):
            return True
        return self._text[event.end : event.end + 80].lstrip()[:1] in ("{", "")

    def _adjacent(self, event: _Event, following: _Event) -> bool:
        return not self._text[event.end : following.start].strip()

    def _forgotten(self, at: int, first: int, taken: Collection[str], known: Collection[str]) -> End | None:
        """The end of a value whose closing tag is missing: a tag that must be the call's own."""
        depth = 0
        for number in range(first, len(self._events)):
            event = self._events[number]
            apart = event.begins or "\n" not in self._text[at : event.start].strip("\r\n")
            if event.kind == "co":
                depth += event.begins
            elif event.kind == "ce" and depth:
                depth -= 1
            elif depth:
                continue
            elif event.kind == "ve" and self._may_end(number, taken):
                return End(event.start, event.end, sure=False)
            elif apart and (self._ends_call(number) if event.kind == "ce" else self._next(event, taken, known)):
                if _NEXT.search(self._text, at, event.start):
                    raise Unclear
                return End(event.start, event.start, sure=False)
        self._spend(first, len(self._events))
        return None

    @staticmethod
    def _next(event: _Event, taken: Collection[str], known: Collection[str]) -> bool:
        return event.kind == "vo" and event.key not in taken and (not known or event.key in known)

    def _ends_call(self, number: int) -> bool:
        ahead = max(self._near[number + 1], self._far[number + 1])
        if ahead and self._events[number].closes == _STRONG:
            raise Unclear
        return not ahead

    def _orphans(self) -> tuple[list[int], list[int]]:
        """Behind each event: the strongest closing of a call that none opened, before the next call and anywhere."""
        size = len(self._events)
        near, far = [_LOST] * (size + 1), [_LOST] * (size + 1)
        opened: list[int] = []
        match: dict[int, int] = {}
        for number, event in enumerate(self._events):
            if event.kind == "co":
                opened.append(number)
            elif event.kind == "ce" and opened:
                match[opened.pop()] = number
        for number in range(size - 1, -1, -1):
            event = self._events[number]
            if event.kind == "co":
                # Past the whole call; one that is never closed, or closes what it did not open, is a word, or cut.
                word = number + 1 < size and self._events[number + 1].kind == "ve"
                far[number] = far[(number if word else match.get(number, number)) + 1]
                continue
            own = self._orphan(number) if event.kind == "ce" else _LOST
            near[number] = max(near[number + 1], own)
            far[number] = max(far[number + 1], own)
        return near, far

    def _orphan(self, number: int) -> int:
        before = self._events[number - 1] if number else None
        behind_value = before is not None and before.kind == "ve" and self._adjacent(before, self._events[number])
        return self._events[number].closes if behind_value else _LOST


def _events(text: str, style: Tags, at: int) -> Iterator[_Event]:
    for found in style.event.finditer(text, at):
        kind = found.lastgroup or ""
        since = max(0, found.start() - 80)
        line = text.rfind("\n", since, found.start())
        begins = (line >= 0 or not since) and not text[max(line, since) : found.start()].strip()
        goes_on, closes, key = False, _LOST, ""
        if kind in ("ve", "ce"):
            blank = _BLANK.match(text, found.end())
            place = blank.end() if blank else found.end()
            if kind == "ve":
                goes_on = place >= len(text) or any(
                    each.match(text, place) for each in (style.value, style.call_end, style.over, style.call)
                )
            else:
                ended = place >= len(text) or any(each.match(text, place) for each in (style.over, style.call, _NEXT))
                closes = _STRONG if ended else _WEAK
        elif kind == "vo" and (value := style.value.match(text, found.start())):
            key = value["key"].strip()
        yield _Event(kind, found.start(), found.end(), begins, goes_on, closes, key)
