"""Calls in XML: an element for the call, with one for each argument.

Values are not escaped: a file about the format is written with calls like any other, so `<`, `&` and whole calls may be
in them. A value ends at a closing tag after which the call continues or ends. Tags are read as brackets first; if that
finds no end, tags in the middle of a line count as words, and only then a closing tag counts as forgotten. Closing tags
after the call that no call opened are the rest of a value that was ended too early. So a call is only decided when the
whole text has arrived.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

from lmagent.core import repair
from lmagent.core.loosejson import Broken, Cut, read_whole
from lmagent.providers.formats.base import Found, FoundCall, Read, Source, Toolset

_LOST, _WEAK, _STRONG = 0, 1, 2
_SHARE = 4
_BLANK = re.compile(r"\s*")
_BREAK = re.compile(r"\r?\n")
_NEXT = re.compile(r"<(?:tool_call|function_calls|minimax:tool_call|seed:tool_call)>")


class Tags(NamedTuple):
    """The tags of a format.

    Attributes:
        call: opens a call; group `name`.
        call_end: closes it.
        value: opens an argument; group `key`, and group `text` ("true" or "false") if the format marks strings.
        value_end: closes it.
        over: markup that may follow the last call.
        event: any of them, for values that contain calls themselves.
    """

    call: re.Pattern[str]
    call_end: re.Pattern[str]
    value: re.Pattern[str]
    value_end: re.Pattern[str]
    over: re.Pattern[str]
    event: re.Pattern[str]


class ValueEnd(NamedTuple):
    """The end of a value.

    Attributes:
        at: its end.
        after: the place after its closing tag.
        sure: it ends at its own closing tag, with every other tag paired.
    """

    at: int
    after: int
    sure: bool


class Unclear(Exception):
    """Closing tags follow that belong to the value, or to no tag: its end is ambiguous."""


class _Event(NamedTuple):
    kind: str
    start: int
    end: int
    begins: bool
    goes_on: bool
    """Of a value's closing tag: the call continues or ends after it."""
    closes: int
    """Of a call's closing tag: the strength of the evidence for a call's end there."""
    key: str


class Ends:
    """The tags in a text from one place on, and their pairs."""

    def __init__(self, source: Source, style: Tags, at: int) -> None:
        self._text = source.text
        self._budget = len(source.text) // _SHARE + 20_000
        self._events = list(_events(source.text, style, at))
        self._starts = [event.start for event in self._events]
        self._near, self._far = self._orphans()
        self._known: Collection[str] = ()

    def find(self, at: int, taken: Collection[str], tools: Toolset, name: str) -> ValueEnd | None:
        """Return the end of the value that begins at `at`; None if it does not end.

        Args:
            taken: the arguments that the call has so far, this one included.
            name: the tool.

        Raises:
            Unclear: it may end at more than one place.
        """
        self._spend(0, 0)
        first = bisect_left(self._starts, at)
        # If a value begins on a line of its own, its closing tag does, too: that is the template of most models.
        apart = self._text.startswith(("\n", "\r\n"), at)
        own = bool(first) and self._events[first - 1].begins
        self._known = tools.properties(name) if own else ()
        for words, lines in (
            ((False, True), (False, False), (True, False)) if apart else ((False, False), (True, False))
        ):
            if (found := self._paired(first, taken, words=words, lines=lines)) is not None:
                event = self._events[found]
                return ValueEnd(event.start, event.end, not words)
        return self._forgotten(at, first, taken, tools.properties(name))

    def orphaned(self, at: int) -> bool:
        """Return whether tags that close a call follow, but no call that they close."""
        last = bisect_left(self._starts, at) - 1
        return max(self._near[last + 1], self._far[last + 1]) > _LOST

    def _spend(self, first: int, last: int) -> None:
        self._budget -= last - first
        if self._budget < 0:
            raise Unclear

    def _paired(self, first: int, taken: Collection[str], *, words: bool, lines: bool) -> int | None:
        """Return the closing tag that no tag in the value opens.

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
        after = number + 1 + (following is not None and following.kind == "ce")
        near, far = self._near[after], self._far[after]
        if following is not None and following.closes == _STRONG:
            if max(near, far) == _STRONG:
                raise Unclear
            return True
        if near == _STRONG:
            return False  # this tag is in the middle of the value
        if max(near, far):
            raise Unclear
        return True

    def _begins_call(self, number: int) -> bool:
        """Return whether an argument, or the call's end, follows a tag that opens a call."""
        event = self._events[number]
        following = self._events[number + 1] if number + 1 < len(self._events) else None
        if following is not None and following.kind in ("vo", "ce") and self._adjacent(event, following):
            return True
        return self._text[event.end : event.end + 80].lstrip()[:1] in ("{", "")

    def _adjacent(self, event: _Event, following: _Event) -> bool:
        return not self._text[event.end : following.start].strip()

    def _forgotten(self, at: int, first: int, taken: Collection[str], known: Collection[str]) -> ValueEnd | None:
        """Return the end of a value whose closing tag is missing: a tag that must be the call's own."""
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
                return ValueEnd(event.start, event.end, sure=False)
            elif apart and (self._ends_call(number) if event.kind == "ce" else self._next(event, taken, known)):
                if _NEXT.search(self._text, at, event.start):
                    raise Unclear
                return ValueEnd(event.start, event.start, sure=False)
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
        """Return after each event: the strongest closing of an unopened call, before the next call and at any place."""
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
                # Skip the whole call. A tag that is never closed, or that an argument's end follows, is a word, or cut.
                word = number + 1 < size and self._events[number + 1].kind == "ve"
                far[number] = far[(number if word else match.get(number, number)) + 1]
                continue
            own = self._orphan(number) if event.kind == "ce" else _LOST
            near[number] = max(near[number + 1], own)
            far[number] = max(far[number + 1], own)
        return near, far

    def _orphan(self, number: int) -> int:
        before = self._events[number - 1] if number else None
        after_value = before is not None and before.kind == "ve" and self._adjacent(before, self._events[number])
        return self._events[number].closes if after_value else _LOST


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


def tags(call: str, call_end: str, value: str, value_end: str, over: str = r"(?!)") -> Tags:
    plain = [re.sub(r"\(\?P<\w+>", "(?:", pattern) for pattern in (call, call_end, value, value_end)]
    event = f"(?P<co>{plain[0]})|(?P<ce>{plain[1]})|(?P<vo>{plain[2]})|(?P<ve>{plain[3]})"
    return Tags(*(re.compile(pattern) for pattern in (call, call_end, value, value_end, over, event)))


def read_calls(source: Source, at: int, style: Tags, format: str) -> Found:
    """Read calls from `at` on, one after the other; without a call, `end` stays at `at`."""
    found = Found(end=at)
    place = source.skip(at)
    while opened := source.match(style.call, place):
        if not _read_call(source, opened, style, format, found):
            break
        place = source.skip(found.end)
    return found


def _read_call(source: Source, opened: re.Match[str], style: Tags, format: str, found: Found) -> bool:
    """Add the call that a tag opens; return False if the text is cut inside it."""
    name = source.tools.plain(opened["name"].strip())
    properties = source.tools.properties(name)
    arguments: dict[str, Any] = {}
    at = source.skip(opened.end())
    if source.text[at : at + 1] == "{" and (json := _json_body(source, name, at, style, format)):
        found.items.append(json)
        found.end = at + len(json.raw)
        if ended := source.match(style.call_end, source.skip(found.end)):
            found.end = ended.end()
        return True
    sure = True
    while value := source.match(style.value, at):
        key = value["key"].strip()
        try:
            end = _ends(source, style, opened.start()).find(value.end(), {*arguments, key}, source.tools, name)
        except Unclear:
            return _unclear(source, name, opened, found, format, f"it is unclear where the argument {key!r} ends")
        if end is None:
            found.cut, found.end = name, source.end
            return False
        text, sure = source.text[value.end() : end.at], sure and end.sure
        text = text if end.after > end.at else text.rstrip("\r\n")
        arguments[key] = typed(text, properties.get(key), _told(value))
        at = source.skip(end.after)
    if ended := source.match(style.call_end, at):
        at = ended.end()
    elif source.match(style.over, at) or source.match(style.call, at):
        sure = False
    else:
        if at >= source.end:
            found.cut, found.end = name, source.end
            return False
        return _damaged(source, name, opened, style, format, found)
    if not sure and _ends(source, style, opened.start()).orphaned(at):
        return _unclear(source, name, opened, found, format, "closing tags are missing, or there are too many")
    found.end = at
    call = source.call(name, arguments, opened.start(), at, format)
    call.sure = sure
    found.items.append(call)
    return True


def _unclear(source: Source, name: str, opened: re.Match[str], found: Found, format: str, fault: str) -> bool:
    """Keep a call without a clear end as text, with all the text that follows; no other call can follow."""
    raw = source.text[opened.start() :]
    text = source.text[opened.end() :].strip()
    found.items.append(FoundCall(name=name, arguments=text, raw=raw, format=format, fault=fault, spills=True))
    found.end = source.end
    return False


def _told(value: re.Match[str]) -> str:
    return (value.groupdict().get("text") or "").lower()


def _json_body(source: Source, name: str, at: int, style: Tags, format: str) -> FoundCall | None:
    """Return a call whose arguments are one JSON object instead of elements."""
    end = source.search(style.call_end, at)
    try:
        stop = source.text[end : end + 3] if end >= 0 else "\0"
        value, after = source.value(at, (stop,))
    except (Cut, Broken):
        return None
    return source.call(name, value, at, after, format)


def _damaged(source: Source, name: str, opened: re.Match[str], style: Tags, format: str, found: Found) -> bool:
    """Keep a call with other contents than arguments as text."""
    ends = _ends(source, style, opened.start())
    end = source.search(style.call_end, opened.end())
    if end < 0:
        found.cut, found.end = name, source.end
        return False
    ended = style.call_end.match(source.text, end)
    found.end = ended.end() if ended else end
    if ends.orphaned(found.end):
        return _unclear(source, name, opened, found, format, "closing tags are missing, or there are too many")
    text = source.text[opened.end() : end].strip()
    read, value = read_whole(text) if text[:1] == "{" else (False, None)
    raw = source.text[opened.start() : found.end]
    if read and isinstance(value, dict):
        found.items.append(source.call(name, value, opened.start(), found.end, format))
    elif text and text[0] not in "{[<" and not style.event.search(text) and (main := source.tools.main(name)):
        found.items.append(source.call(name, {main: text}, opened.start(), found.end, format))
    else:
        fault = "the call holds neither arguments nor a JSON object"
        found.items.append(FoundCall(name=name, arguments=text, raw=raw, format=format, fault=fault, spills=True))
    return True


def _ends(source: Source, style: Tags, at: int) -> Ends:
    """Return the tags from `at` on, searched once in a text. Raise More if the text is not complete."""
    source.needs()
    since, known = source.memo.get(style.event, (source.end + 1, None))
    if known is None or at < since:
        known = Ends(source, style, at)
        source.memo[style.event] = at, known
    return known


def typed(text: str, schema: Any, told: str = "") -> Any:
    """Return a value in its schema's type, without the line breaks around it; `told` is the type that the format
    gives."""
    if begun := _BREAK.match(text):
        text = text[begun.end() :].removesuffix("\n")
        text = text.removesuffix("\r") if begun[0] == "\r\n" else text
    if told == "false":
        read, value = read_whole(text.strip())
        if read:
            return value
    return text if told == "true" and not schema else repair.fit_text(text, schema or {})


def inside(name: str, style: Tags, closers: tuple[str, ...]) -> Read:
    """Return a format's `read` for calls in a wrapper; the wrapper's closing tag may be missing after a whole call."""

    def read(source: Source, at: int, opener: str) -> Found | None:
        at = source.skip(at)
        if source.starts(at, opener):
            at = source.skip(at + len(opener))
        if not source.match(style.call, at):
            return None
        found = read_calls(source, at, style, name)
        if found.cut is None:
            place = source.skip(found.end)
            if size := source.closer(place, *closers):
                found.end = place + size
        return found

    return read


def alone(name: str, style: Tags, closers: tuple[str, ...]) -> Read:
    """Return a format's `read` for calls without their wrapper: the opener begins the call's own tag."""

    def read(source: Source, at: int, opener: str) -> Found | None:
        return inside(name, style, closers)(source, at - len(opener), "\0")

    return read
