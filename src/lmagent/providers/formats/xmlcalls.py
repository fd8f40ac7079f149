"""Calls in XML: an element for the call, one in it for each argument.

Values are not escaped: `<`, `&` and whole elements may stand in them. So a value ends at a closing tag behind which the
call goes on or ends, not at the first one; elements of calls inside a value are skipped in pairs (`xmlends`). What
stands behind a call has its say in that, so a call is only decided when the whole text is there.
"""

from __future__ import annotations

import re
from typing import Any

from lmagent.core import repair
from lmagent.core.loosejson import Broken, Cut, read_whole
from lmagent.providers.formats.base import Found, FoundCall, Read, Source
from lmagent.providers.formats.xmlends import Ends, Tags, Unclear

_BREAK = re.compile(r"\r?\n")


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
    sure = True
    while value := source.match(style.value, at):
        key = value["key"].strip()
        try:
            end = _ends(source, style, opened.start()).find(value.end(), {*arguments, key}, source.tools, name)
        except Unclear:
            return _unclear(source, name, opened, found, format, f"it cannot be told where the argument {key!r} ends")
        if end is None:
            found.cut, found.end = name, source.end
            return False
        text, sure = source.text[value.end() : end.at], sure and end.sure
        text = text if end.behind > end.at else text.rstrip("\r\n")
        arguments[key] = typed(text, properties.get(key), _told(value))
        at = source.skip(end.behind)
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
    """A call that nobody can tell the end of is handed on with all that follows; False, as nothing else does."""
    raw = source.text[opened.start() :]
    text = source.text[opened.end() :].strip()
    found.items.append(FoundCall(name=name, arguments=text, raw=raw, format=format, fault=fault, spills=True))
    found.end = source.end
    return False


def _told(value: re.Match[str]) -> str:
    return (value.groupdict().get("text") or "").lower()


def _json_body(source: Source, name: str, at: int, style: Tags, format: str) -> FoundCall | None:
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
        fault = "neither arguments nor a JSON object stand in the call"
        found.items.append(FoundCall(name=name, arguments=text, raw=raw, format=format, fault=fault, spills=True))
    return True


def _ends(source: Source, style: Tags, at: int) -> Ends:
    """The tags from `at` on, looked for once in a text.

    Raises:
        More: the text is not complete.
    """
    source.needs()
    since, known = source.memo.get(style.event, (source.end + 1, None))
    if known is None or at < since:
        known = Ends(source, style, at)
        source.memo[style.event] = at, known
    return known


def typed(text: str, schema: Any, told: str = "") -> Any:
    """A value as its schema wants it, without the line breaks that set it off; `told` is what the format says."""
    if begun := _BREAK.match(text):
        text = text[begun.end() :].removesuffix("\n")
        text = text.removesuffix("\r") if begun[0] == "\r\n" else text
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
