"""Calls in JSON: the shapes of objects that are calls, and lists of them between two pieces of markup."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, cast

from lmagent.core.loosejson import Broken, Cut, fault_in
from lmagent.core.patterns import late
from lmagent.providers.formats.base import Found, FoundCall, Read, Source, Toolset, end_of, make_call

NAME_KEYS = ("name", "tool_name", "function_name", "tool", "function", "action", "recipient_name")
ARGUMENT_KEYS = (
    "arguments",
    "parameters",
    "args",
    "params",
    "input",
    "tool_input",
    "action_input",
    "kwargs",
    "argument",
    "parameter",
    "tool_args",
    "tool_arguments",
    "tool_parameters",
    "function_args",
    "function_arguments",
)
ID_KEYS = ("id", "call_id", "tool_call_id")
_EXTRA = frozenset((*ID_KEYS, "type", "index", "thought", "thoughts", "reasoning"))
_MESSAGE = ("role", "content", "refusal", "reasoning_content", "tool_choice", "finish_reason")
_LISTS = ("tool_calls", "tool_uses", "function_calls", "calls", "actions")
_ONES = ("function_call", "tool_call", "tool_use")
_ITEM_DEPTH = 4
_NAMED = late(r"""["'“](?:name|tool_name|function_name|tool|function|action)["'”]\s*:\s*["'“]([^"'“”\s]{1,128})["'”]""")
_ARGUED = late(r"""["'“](?:arguments|parameters|args|params|input|tool_input|action_input)["'”]\s*:\s*""")
_FENCE = late(r"```[\w-]*")
_JUNK = 200
_MARKUP = late(r"[<{\[]")
UNNAMED = "unreadable"
"""The name of a call with an unreadable name: servers reject an empty one."""

Shape = Callable[[Any, Toolset, str], "list[FoundCall] | None"]
"""Takes a value, the tools and the text; returns the value's calls, or None."""


def shaped(value: Any, tools: Toolset, raw: str) -> list[FoundCall] | None:
    """Return the calls in a value inside markup; None if it is no call."""
    entries = _entries(value)
    found = [_one(entry, tools, raw) for entry in entries or ()]
    return None if entries is None or None in found else [call for call in found if call is not None]


def _one(entry: dict[str, Any], tools: Toolset, raw: str) -> FoundCall | None:
    inner = entry.get("function")
    identity = next((str(entry[key]) for key in ID_KEYS if entry.get(key) not in (None, "")), "")
    if isinstance(inner, dict):
        entry = cast("dict[str, Any]", inner)
    key = next((key for key in NAME_KEYS if isinstance(entry.get(key), str) and entry[key]), None)
    if key is None:
        ((only, given),) = entry.items() if len(entry) == 1 else (("", None),)
        return make_call(tools, only, given, raw, identity) if isinstance(given, dict) else None
    holder = next((each for each in ARGUMENT_KEYS if each in entry), None)
    rest = {each: item for each, item in entry.items() if each != key and each not in _EXTRA}
    return make_call(tools, entry[key], entry[holder] if holder is not None else rest, raw, identity)


def anchored(value: Any, tools: Toolset, raw: str) -> list[FoundCall] | None:
    """Return the calls in a value without markup: only known tools, in the exact shape of a call."""
    if not all(_exact(entry, tools) for entry in _entries(value, exact=True) or ({},)):
        return None
    calls = shaped(value, tools, raw)
    return calls if calls and all(tools.known(call.name) for call in calls) else None


def _entries(value: Any, depth: int = 0, *, exact: bool = False) -> list[dict[str, Any]] | None:
    """Return the objects in a value that would each be a call; None if other items are among them.

    `exact`: an object around them may have only the fields of a message.
    """
    if depth > _ITEM_DEPTH:
        return None
    if isinstance(value, list):
        found = [_entries(item, depth + 1, exact=exact) for item in cast("list[Any]", value)]
        return None if None in found else [entry for each in found for entry in each or ()]
    if not isinstance(value, dict):
        return None
    entry = cast("dict[str, Any]", value)
    if not any(isinstance(entry.get(key), str) for key in NAME_KEYS):
        for key in (*_LISTS, *_ONES):
            if isinstance(entry.get(key), list | dict) and (not exact or entry.keys() <= {key, *_EXTRA, *_MESSAGE}):
                return _entries(entry[key], depth + 1, exact=exact)
    return [entry]


def _exact(entry: dict[str, Any], tools: Toolset) -> bool:
    inner = entry.get("function")
    if isinstance(inner, dict):
        if not entry.keys() <= {"function", *_EXTRA}:
            return False
        entry = cast("dict[str, Any]", inner)
    key = next((key for key in NAME_KEYS if isinstance(entry.get(key), str)), None)
    holders = [each for each in ARGUMENT_KEYS if each in entry]
    if key is None or len(holders) != 1 or not entry.keys() <= {key, holders[0], *_EXTRA}:
        return False
    given = entry[holders[0]]
    return isinstance(given, dict | str | None) and not _is_schema(given, tools.properties(tools.plain(entry[key])))


def _is_schema(given: Any, properties: dict[str, Any]) -> bool:
    """Return whether "arguments" are a schema: some models repeat the description of a tool."""
    return isinstance(given, dict) and isinstance(given.get("properties"), dict) and "properties" not in properties  # pyright: ignore[reportUnknownMemberType]


def read_values(source: Source, at: int, stops: tuple[str, ...], shape: Shape = shaped) -> tuple[Found | None, int]:
    """Read calls from `at` on: objects or lists of them, one after the other.

    Args:
        stops: markup that may end them; it closes an open value.

    Returns:
        The calls and the place after them; None if the first value is no call. A damaged value ends the list and
        is its last call.
    """
    found = Found(end=at)
    opened, listed = 0, False
    while True:
        at = found.end
        mark = source.text[at : at + 1]
        if listed and not opened and stops and source.starts(at, *stops):
            return found, at
        if mark == "[":
            opened, listed = opened + 1, True
            found.end = source.skip(at + 1)
        elif mark == "{" and stops and source.starts(source.skip(at + 1), "{"):
            found.end = source.skip(at + 1)  # doubled brackets, as in a template
        elif mark == "{":
            if not _take(source, found, stops, shape):
                return (found if found.items or found.cut is not None else None), found.end
            found.end = _after(source, found.end)
        elif mark == "]" and opened:
            opened -= 1
            found.end = _after(source, at + 1)
        elif opened and not found.items:
            found.cut, found.end = "", source.end
            return (found if at >= source.end else None), at  # a list, but of no calls in JSON
        else:
            return (found if found.items or listed else None), at


def _after(source: Source, at: int) -> int:
    text = source.text
    while at < source.end and (text[at].isspace() or text[at] in ",;"):
        at += 1
    return source.skip(at) if at >= source.end else at


class _Damaged(Exception):
    """A value cannot be read up to `end`."""

    def __init__(self, end: int) -> None:
        super().__init__()
        self.end = end


def _value(source: Source, at: int, stops: tuple[str, ...]) -> tuple[Any, int]:
    """Return the value at `at` and its end; raise `Cut` if the text ends inside it, or `_Damaged`."""
    try:
        return source.value(at, stops)
    except Broken as broken:
        place, _ = source.first(stops, broken.at)
        raise _Damaged(place if place >= 0 else source.end) from broken


def _take(source: Source, found: Found, stops: tuple[str, ...], shape: Shape) -> bool:
    """Read one object; return False at the end of the list (no call, cut or damaged)."""
    start = found.end
    try:
        value, end = _value(source, start, stops)
    except Cut:
        found.cut, found.end = name_in(source.text[start : start + 4000]), source.end
        return False
    except _Damaged as damage:
        if shape is not shaped:
            source.spilled |= source.tools.known(name_in(source.text[start : min(damage.end, start + 4000)]))
            return False
        raw = source.text[start : damage.end].strip()
        argued = _ARGUED.search(raw)
        name = source.tools.plain(name_in(raw)) or UNNAMED
        found.items.append(_damaged(name, raw[argued.end() :] if argued else raw, raw))
        found.end = damage.end
        return False
    raw, stopped = source.text[start:end], source.stopped
    calls = shape(value, source.tools, raw)
    found.end = end
    if calls is None and shape is not shaped:
        return False
    calls = calls or [FoundCall(name=UNNAMED, arguments=raw, raw=raw, fault="the tool's name is missing")]
    for call in calls:
        call.sure, call.spills = not stopped, stopped
    found.items += calls
    return True


def _damaged(name: str, text: str, raw: str, id: str = "") -> FoundCall:
    return FoundCall(name=name, arguments=text, raw=raw, id=id, fault=fault_in(raw))


def named(source: Source, name: str, at: int, stops: tuple[str, ...], id: str = "") -> Found:
    """Return the call of a tool whose name precedes its arguments, which begin at `at`; cut or damaged ones too."""
    if at >= source.end:
        return Found(end=source.end, cut=name)
    try:
        value, end = _value(source, at, stops)
    except Cut:
        return Found(end=source.end, cut=name)
    except _Damaged as damage:
        raw = source.text[at : damage.end].strip()
        text = raw.removesuffix("```").rstrip()
        return Found(end=damage.end, items=[_damaged(source.tools.plain(name), text, raw, id)])
    call = source.call(name, value, at, end, id)
    call.sure, call.spills = not source.stopped, source.stopped
    return Found(end=end, items=[call])


_NOTHING = late("")


def sequence(
    source: Source,
    at: int,
    head: re.Pattern[str],
    stops: tuple[str, ...],
    after: re.Pattern[str] = _NOTHING,
    begun: re.Pattern[str] | None = None,
) -> Found | None:
    """Read calls one after the other: each is a head that names the tool, JSON, and markup after it.

    Args:
        head: groups `name`, and `id` if the format has one.
        after: markup after the arguments.
        begun: the beginning of a head that the end of the text cut off.
    """
    found = Found(end=at)
    while found.cut is None and (opened := source.match(head, found.end)):
        found.add(named(source, opened["name"], opened.end(), stops, opened.groupdict().get("id") or ""))
        if found.cut is None and (ended := source.match(after, found.end)):
            found.end = ended.end()
    if found.cut is None and begun is not None and source.match(begun, found.end):
        found.cut, found.end = "", source.end
    return found if found.items or found.cut is not None else None


def name_in(raw: str) -> str:
    found = _NAMED.search(raw)
    return found[1] if found else ""


def closed(source: Source, found: Found, closers: tuple[str, ...]) -> Found:
    """Return the calls with the markup that ends them, and leftovers before that."""
    if found.cut is not None or not closers:
        return found
    at = source.skip(found.end)
    if size := source.closer(at, *closers):
        found.end = at + size
        return found
    tags = [word for word in closers if word.startswith("</") and word != "</s>"]
    place, word = source.first(tags, at) if tags else (-1, "")
    if 0 <= place - at < _JUNK and not _MARKUP.search(source.text, at, place):
        found.end = place + len(word)
    else:
        found.end = end_of(source.text, found.end)
    return found


def between(closers: tuple[str, ...], stops: tuple[str, ...] = (), shape: Shape = shaped) -> Read:
    """Return a format's `read` for JSON calls between the opener and one of `closers`, which may be missing.

    Args:
        stops: markup that cannot be inside it either: the next call's opener.
    """

    def read(source: Source, at: int, opener: str) -> Found | None:
        at = source.skip(at)
        if size := source.closer(at, *closers):
            return Found(end=at + size)  # an empty call: only markup
        if source.starts(at, "```") and (fence := source.match(_FENCE, at)):
            at = source.skip(fence.end())
        if source.text[at : at + 1] not in ("{", "["):
            return None
        found, _ = read_values(source, at, (*closers, *stops, opener), shape)
        return _doubled(source, closed(source, found, closers), closers, opener) if found else None

    return read


def _doubled(source: Source, found: Found, closers: tuple[str, ...], opener: str) -> Found:
    """Return the calls with an opener that a model wrote at the end instead of the closer."""
    if found.cut is not None or any(source.text.endswith(word, 0, found.end) for word in closers):
        return found
    at = source.skip(found.end)
    if source.starts(at, opener) and source.skip(at + len(opener)) >= source.end:
        found.end = source.end
    return found
