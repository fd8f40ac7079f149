"""Calls in Python's form: `name(key="value", other=1)`, alone, one a line, or in a list.

Values are literals only; other expressions (a variable, a call) make it code, not a call.
"""

from __future__ import annotations

from typing import Any

from lmagent.core.loosejson import Broken, Cut, Loose
from lmagent.core.patterns import late
from lmagent.providers.formats.base import Found, FoundCall, Read, Source, Toolset

CALL = late(r"([A-Za-z_][\w.-]*)[ \t]*\(")
LIST = late(r"\[\s*[A-Za-z_][\w.-]*[ \t]*\(")
_KEYWORD = late(r"([A-Za-z_]\w*)\s*=(?!=)\s*")


class NotACall(Exception):
    """It is code, or prose with brackets."""


def read_call(source: Source, at: int) -> tuple[FoundCall, int]:
    """Return the call at `at` and its end; raise `NotACall`, or `Cut` if the text ends inside it."""
    named = source.match(CALL, at)
    if named is None:
        raise NotACall
    reader = Loose(source.text, python=True)
    positional: list[Any] = []
    keywords: dict[str, Any] = {}
    place = reader.space(named.end())
    while source.text[place : place + 1] != ")":
        place = _argument(source, reader, place, positional, keywords)
    arguments = _placed(source.tools, source.tools.plain(named[1]), positional, keywords)
    return source.call(named[1], arguments, at, place + 1), place + 1


def _argument(source: Source, reader: Loose, at: int, positional: list[Any], keywords: dict[str, Any]) -> int:
    """Read one argument; return the place after it and its comma."""
    if found := _KEYWORD.match(source.text, at):
        value, end = _value(reader, found.end())
        keywords[found[1]] = value
    else:
        value, end = _value(reader, at)
        if keywords:
            raise NotACall
        positional.append(value)
    end = reader.space(end)
    mark = source.text[end : end + 1]
    if mark == ",":
        return reader.space(end + 1)
    if not mark:
        raise Cut(end)
    if mark != ")":
        raise NotACall
    return end


def _value(reader: Loose, at: int) -> tuple[Any, int]:
    try:
        return reader.value(at, 0, "item")
    except Broken as error:
        raise NotACall from error


def _placed(tools: Toolset, name: str, positional: list[Any], keywords: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments by name; positional ones take the schema's names in their order."""
    if not positional:
        return keywords
    names = list(tools.properties(name))
    required = tools.required(name)
    if required and all(each in names for each in required):
        names = [*required, *(each for each in names if each not in required)]
    if len(positional) > len(names) or any(each in keywords for each in names[: len(positional)]):
        raise NotACall
    return {**dict(zip(names, positional, strict=False)), **keywords}


def read_list(source: Source, at: int) -> Found:
    """Read a list of calls, its opening bracket at `at`. A cut list keeps the calls before the cut."""
    found = Found(end=source.skip(at + 1))
    while True:
        if found.end >= source.end:
            found.cut = found.cut or ""
            return found
        mark = source.text[found.end]
        if mark == "]":
            found.end += 1
            return found
        if mark == "," and found.items:
            found.end = source.skip(found.end + 1)
            continue
        if not read_next(source, found):
            return found


def read_next(source: Source, found: Found) -> bool:
    start = found.end
    try:
        call, end = read_call(source, start)
    except Cut:
        named = CALL.match(source.text, start)
        found.cut, found.end = source.tools.plain(named[1]) if named else "", source.end
        return False
    found.items.append(call)
    found.end = source.skip(end)
    return True


def between(closers: tuple[str, ...]) -> Read:
    """Return a format's `read` for calls in Python's form, in a list or one after the other, up to one of `closers`."""

    def read(source: Source, at: int, opener: str) -> Found | None:
        at = source.skip(at)
        try:
            if source.text[at : at + 1] == "[":
                found = read_list(source, at)
            elif source.match(CALL, at):
                found = read_lines(source, at, closers)
            else:
                return None
        except NotACall:
            return _damaged(source, at, closers)
        if found.cut is not None:
            return found
        place = source.skip(found.end)
        size = source.closer(place, *closers)
        if not size and place < source.end:
            return _damaged(source, at, closers)
        found.end = place + size
        return found

    return read


def read_lines(source: Source, at: int, closers: tuple[str, ...]) -> Found:
    found = Found(end=at)
    while read_next(source, found):
        while source.text[found.end : found.end + 1] in (",", ";"):
            found.end = source.skip(found.end + 1)
        if found.end >= source.end or source.starts(found.end, *closers):
            break
    return found


def _damaged(source: Source, at: int, closers: tuple[str, ...]) -> Found | None:
    """Keep unreadable calls as text; without markup that ends them they are no calls."""
    named = CALL.match(source.text, at + (source.text[at : at + 1] == "["))
    place, word = source.first(closers, at)
    if named is None or place < 0:
        return None
    raw = source.text[at:place].rstrip()
    call = FoundCall(
        name=source.tools.plain(named[1]),
        arguments=source.text[named.end() : place].rstrip().removesuffix("]").rstrip().removesuffix(")"),
        raw=raw,
        fault="not a call with literal arguments",
    )
    return Found(end=place + len(word), items=[call])
