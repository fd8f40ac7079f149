"""Calls in XML: an element for the call, with one for each argument.

Values are not escaped: a file about the format is written with calls like any other, so `<`, `&` and whole calls may be
in them. So tags are read as brackets, and a value ends at a closing tag of its own after which the call continues or
ends. If closing tags follow the call that nothing opened, a value was ended too early: the call has a fault, and all
text that follows belongs to it.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Collection
from typing import Any, NamedTuple

from lmagent.core import repair
from lmagent.core.loosejson import Broken, Cut, read_whole
from lmagent.core.patterns import late
from lmagent.providers.formats.base import Found, FoundCall, Read, Source

_EFFORT = 4
_BLANK = late(r"\s*")
_BREAK = late(r"\r?\n")


class Tags(NamedTuple):
    """The tags of a format.

    Attributes:
        call: opens a call; group `name`.
        call_end: closes it.
        value: opens an argument; group `key`, and group `text` ("true" or "false") if the format marks strings.
        value_end: closes it.
        over: markup that may follow the last call.
        event: any of the first four.
        follows: markup that may follow an argument.
        ends: markup that may follow a call.
    """

    call: re.Pattern[str]
    call_end: re.Pattern[str]
    value: re.Pattern[str]
    value_end: re.Pattern[str]
    over: re.Pattern[str]
    event: re.Pattern[str]
    follows: re.Pattern[str]
    ends: re.Pattern[str]


def tags(call: str, call_end: str, value: str, value_end: str, over: str = r"(?!)") -> Tags:
    co, ce, vo, ve = (re.sub(r"\(\?P<\w+>", "(?:", pattern) for pattern in (call, call_end, value, value_end))
    event = f"(?P<co>{co})|(?P<ce>{ce})|(?P<vo>{vo})|(?P<ve>{ve})"
    follows = rf"\s*(?:{vo}|{ce}|{over}|{co}|\Z)"
    ends = rf"\s*(?:{over}|{co}|<(?:tool_call|function_calls|minimax:tool_call|seed:tool_call)>|\Z)"
    return Tags(*(late(pattern) for pattern in (call, call_end, value, value_end, over, event, follows, ends)))


class Unclear(Exception):
    """The end of a value is ambiguous."""


class _Tag(NamedTuple):
    """A tag; `begins`: it begins a line."""

    kind: str
    start: int
    end: int
    begins: bool


class _TagReader:
    def __init__(self, source: Source, style: Tags, at: int) -> None:
        self._text = source.text
        self._style = style
        self._effort = len(source.text) // _EFFORT + 20_000
        self._tags = [self._tag(found) for found in style.event.finditer(source.text, at)]
        self._starts = [tag.start for tag in self._tags]
        self._orphaned = self._orphans()

    def _tag(self, found: re.Match[str]) -> _Tag:
        since = max(0, found.start() - 80)
        line = self._text.rfind("\n", since, found.start())
        begins = (line >= 0 or not since) and not self._text[max(line, since) : found.start()].strip()
        return _Tag(found.lastgroup or "", found.start(), found.end(), begins)

    def _orphans(self) -> list[bool]:
        """Return after each tag whether closing tags of calls follow that nothing between opens."""
        found, calls, values, ended = [False], 0, 0, False
        for tag in reversed(self._tags):
            if tag.kind == "ce":
                ended = tag.begins or bool(self._style.ends.match(self._text, tag.end))
                calls = min(calls, 0) - ended
            elif tag.kind == "ve":
                values = min(values, 0) - ended
                ended = False
            else:
                calls, values, ended = calls + (tag.kind == "co"), values + (tag.kind == "vo"), False
            found.append(min(calls, values) < 0)
        return found[::-1]

    def end_of_value(self, at: int, taken: Collection[str], known: Collection[str]) -> tuple[int, int, bool] | None:
        """Return the end of the value that begins at `at`, the place after it, and whether its own tag closes it.

        Args:
            taken: the arguments that the call has so far, this one included.
            known: the arguments of the tool.
        """
        first = bisect_left(self._starts, at)
        # If a value begins on a line of its own, its closing tag does, too: that is the template of most models.
        for lines in (True, False) if self._text.startswith(("\n", "\r\n"), at) else (False,):
            if (tag := self._paired(first, taken, lines=lines)) is not None:
                return tag.start, tag.end, True
        for tag in self._tags[first:]:  # its closing tag was forgotten
            apart = tag.begins or "\n" not in self._text[at : tag.start].strip("\r\n")
            if tag.kind in ("co", "ve") or not apart:
                break
            if tag.kind == "ce" or (self._key(tag) not in taken and (not known or self._key(tag) in known)):
                return tag.start, tag.start, False
        if any(tag.kind == "ce" for tag in self._tags[first:]):
            raise Unclear
        return None

    def orphaned(self, at: int) -> bool:
        return self._orphaned[bisect_left(self._starts, at)]

    def _paired(self, first: int, taken: Collection[str], *, lines: bool) -> _Tag | None:
        """Return the closing tag that no tag in the value opens; with `lines`, of those that begin a line."""
        opened: list[str] = []
        for number in range(first, len(self._tags)):
            tag = self._tags[number]
            if lines and not tag.begins:
                continue
            if tag.kind in ("co", "vo"):
                opened.append(tag.kind)
            elif tag.kind == "ce":
                if "co" in opened:
                    while opened.pop() != "co":
                        pass
            elif opened:
                opened[-1:] = [] if opened[-1] == "vo" else ["co"]
            elif self._may_end(number, taken, lines=lines):
                return tag
        self._effort -= len(self._tags) - first
        if self._effort < 0:
            raise Unclear
        return None

    def _may_end(self, number: int, taken: Collection[str], *, lines: bool) -> bool:
        if not self._style.follows.match(self._text, self._tags[number].end):
            return False
        following = self._tags[number + 1] if number + 1 < len(self._tags) else None
        if following is None or following.kind != "vo":
            return True
        return self._key(following) not in taken and (following.begins or not lines)  # else it is a part of the value

    def _key(self, tag: _Tag) -> str:
        opened = self._style.value.match(self._text, tag.start)
        return opened["key"].strip() if opened else ""


def read_calls(source: Source, at: int, style: Tags) -> Found:
    found = Found(end=at)
    place = source.skip(at)
    while opened := source.match(style.call, place):
        if not _read_call(source, opened, style, found):
            break
        place = source.skip(found.end)
    return found


def _read_call(source: Source, opened: re.Match[str], style: Tags, found: Found) -> bool:
    """Add the call that a tag opens; return False if no other call can follow."""
    name = source.tools.plain(opened["name"].strip())
    at = source.skip(opened.end())
    if source.text[at : at + 1] == "{" and (json := _json_body(source, name, at, style)):
        found.items.append(json)
        found.end = at + len(json.raw)
        if ended := source.match(style.call_end, source.skip(found.end)):
            found.end = ended.end()
        return True
    try:
        arguments, at, sure = _arguments(source, name, at, style, _reader(source, style, opened.start()))
    except Unclear:
        raw = source.text[opened.start() :]
        text = source.text[opened.end() :].strip()
        fault = "it is unclear where its arguments end: closing tags are missing, or there are too many"
        found.items.append(FoundCall(name=name, arguments=text, raw=raw, fault=fault))
        found.end = source.end
        return False
    if at < 0:
        found.cut, found.end = name, source.end
        return False
    found.end = at
    call = source.call(name, arguments, opened.start(), at)
    call.sure = sure
    found.items.append(call)
    return True


def _arguments(source: Source, name: str, at: int, style: Tags, reader: _TagReader) -> tuple[dict[str, Any], int, bool]:
    """Return the arguments, the place after the call, -1 if the text is cut inside it, and whether it is closed."""
    properties, begin = source.tools.properties(name), at
    arguments: dict[str, Any] = {}
    sure = True
    while value := source.match(style.value, at):
        key = value["key"].strip()
        end = reader.end_of_value(value.end(), {*arguments, key}, properties)
        if end is None:
            return {}, -1, False
        text, sure = source.text[value.end() : end[0]], sure and end[2]
        text = text if end[2] else text.rstrip("\r\n")
        arguments[key] = typed(text, properties.get(key), (value.groupdict().get("text") or "").lower())
        at = source.skip(end[1])
    if ended := source.match(style.call_end, at):
        at = ended.end()
    elif source.match(style.over, at) or source.match(style.call, at):
        sure = False
    elif at >= source.end or (end := source.search(style.call_end, at)) < 0:
        return {}, -1, False
    else:
        text, main = source.text[begin:end].strip(), source.tools.main(name)
        if main is None or not text or text[0] in "{[<" or style.event.search(text):
            raise Unclear  # it holds neither arguments nor text for the only one
        arguments, at = {main: text}, end
        at += len(style.call_end.match(source.text, end)[0])  # type: ignore[index]
    if reader.orphaned(at):
        raise Unclear
    return arguments, at, sure


def _json_body(source: Source, name: str, at: int, style: Tags) -> FoundCall | None:
    """Return a call whose arguments are one JSON object instead of elements."""
    end = source.search(style.call_end, at)
    try:
        stop = source.text[end : end + 3] if end >= 0 else "\0"
        value, after = source.value(at, (stop,))
    except (Cut, Broken):
        return None
    return source.call(name, value, at, after)


def _reader(source: Source, style: Tags, at: int) -> _TagReader:
    since, known = source.memo.get(style, (source.end + 1, None))
    if known is None or at < since:
        known = _TagReader(source, style, at)
        source.memo[style] = at, known
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


def inside(style: Tags, closers: tuple[str, ...]) -> Read:
    """Return a format's `read` for calls in a wrapper; the wrapper's closing tag may be missing after a whole call."""

    def read(source: Source, at: int, opener: str) -> Found | None:
        at = source.skip(at)
        if source.starts(at, opener):
            at = source.skip(at + len(opener))
        if not source.match(style.call, at):
            return None
        found = read_calls(source, at, style)
        if found.cut is None:
            place = source.skip(found.end)
            if size := source.closer(place, *closers):
                found.end = place + size
        return found

    return read


def alone(style: Tags, closers: tuple[str, ...]) -> Read:
    """Return a format's `read` for calls without their wrapper: the opener begins the call's own tag."""

    def read(source: Source, at: int, opener: str) -> Found | None:
        return inside(style, closers)(source, at - len(opener), "\0")

    return read
