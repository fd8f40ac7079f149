"""Calls in XML: an element for the call, one in it for each argument.

Values are not escaped: `<`, `&` and whole elements may stand in them. So a value ends at a closing tag behind which the
call goes on or ends, not at the first one; elements of calls inside a value are skipped in pairs.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from lmagent.providers import repair
from lmagent.providers.formats.base import Call, Found, More, Read, Source
from lmagent.providers.formats.values import Broken, Cut, read_whole


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


def tags(call: str, call_end: str, value: str, value_end: str, over: str = r"(?!)") -> Tags:
    """The tags of a format from patterns without flags."""
    plain = [re.sub(r"\(\?P<\w+>", "(?:", pattern) for pattern in (call, call_end, value, value_end)]
    event = f"(?P<co>{plain[0]})|(?P<ce>{plain[1]})|(?P<vo>{plain[2]})|(?P<ve>{plain[3]})"
    return Tags(*(re.compile(pattern) for pattern in (call, call_end, value, value_end, over, event)))


def read_calls(source: Source, at: int, style: Tags, format: str) -> Found:
    """Calls from `at` on, one behind the other; nothing found leaves `end` at `at`."""
    found = Found(end=at)
    place = source.skip(at)
    while opened := source.match(style.call, place):
        if not _read_call(source, opened, style, format, found):
            break
        place = source.skip(found.end)
    return found


def _read_call(source: Source, opened: re.Match[str], style: Tags, format: str, found: Found) -> bool:
    """Add the call that a tag opens; False if the text is cut inside it."""
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
    while value := source.match(style.value, at):
        end, behind = _value_end(source, value.end(), style)
        if end < 0:
            found.cut, found.end = name, source.end
            return False
        text = source.text[value.end() : end]
        arguments[value["key"].strip()] = typed(text, properties.get(value["key"].strip()), _told(value))
        at = source.skip(behind)
    if ended := source.match(style.call_end, at):
        at = ended.end()
    elif not (source.match(style.over, at) or source.match(style.call, at)):
        if at >= source.end:
            found.cut, found.end = name, source.end
            return False
        return _damaged(source, name, opened, style, format, found)
    found.end = at
    found.items.append(source.call(name, arguments, opened.start(), at, format))
    return True


def _told(value: re.Match[str]) -> str:
    return (value.groupdict().get("text") or "").lower()


def _json_body(source: Source, name: str, at: int, style: Tags, format: str) -> Call | None:
    """A call whose arguments are one JSON object instead of elements."""
    end = source.search(style.call_end, at)
    try:
        stop = source.text[end : end + 3] if end >= 0 else "\0"
        value, behind = source.value(at, (stop,))
    except (Cut, Broken):
        return None
    return source.call(name, value, at, behind, format)


def _damaged(source: Source, name: str, opened: re.Match[str], style: Tags, format: str, found: Found) -> bool:
    """A call with something else than arguments in it is handed on as it came."""
    end = source.search(style.call_end, opened.end())
    if end < 0:
        found.cut, found.end = name, source.end
        return False
    ended = style.call_end.match(source.text, end)
    found.end = ended.end() if ended else end
    text = source.text[opened.end() : end].strip()
    read, value = read_whole(text) if text[:1] == "{" else (False, None)
    raw = source.text[opened.start() : found.end]
    if read and isinstance(value, dict):
        found.items.append(source.call(name, value, opened.start(), found.end, format))
    elif text and text[0] not in "{[<" and (main := source.tools.main(name)):
        found.items.append(source.call(name, {main: text}, opened.start(), found.end, format))
    else:
        fault = "neither arguments nor a JSON object stand in the call"
        found.items.append(Call(name=name, arguments=text, raw=raw, format=format, fault=fault))
    return True


def _value_end(source: Source, at: int, style: Tags) -> tuple[int, int]:
    """Where a value ends and the place behind its closing tag; (-1, -1) if the text is cut inside it."""
    for nested in (True, False) if source.effort < 4 * source.end + 100_000 else (False,):
        depth = 0
        for event in style.event.finditer(source.text, at):
            kind = event.lastgroup
            if kind == "co":
                depth += nested
            elif kind == "ce" and depth:
                depth -= 1
            elif not depth and _ends_value(source, event, style):
                return event.start(), event.end() if kind == "ve" else event.start()
        if not source.final:
            raise More
        source.effort += source.end - at
    return -1, -1


def _ends_value(source: Source, event: re.Match[str], style: Tags) -> bool:
    if event.lastgroup == "ve":
        at = source.skip(event.end())
        if at >= source.end:
            return True
        return any(source.match(each, at) for each in (style.value, style.call_end, style.over, style.call))
    before = source.text[max(0, event.start() - 1) : event.start()]
    return before == "\n"  # the closing tag was forgotten


def typed(text: str, schema: Any, told: str = "") -> Any:
    """A value as its schema wants it, without the line breaks that set it off; `told` is what the format says."""
    if text.startswith("\n"):
        text = text[1:].removesuffix("\n")
    if told == "false":
        read, value = read_whole(text.strip())
        if read:
            return value
    return text if told == "true" and not schema else repair.fit_text(text, schema or {})


def inside(name: str, style: Tags, closers: tuple[str, ...]) -> Read:
    """A format's `read` for calls in a wrapper; the wrapper's closing tag may be missing behind a whole call."""

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
    """A format's `read` for calls whose wrapper was forgotten: the opener is the beginning of the call's own tag."""

    def read(source: Source, at: int, opener: str) -> Found | None:
        return inside(name, style, closers)(source, at - len(opener), "\0")

    return read
