"""Fences: the calls in Markdown fences: JSON, Gemma 3's `tool_code`, and native calls.

Models also quote in fences. So JSON in a fence counts only if the fence ends the message (or only fences with calls
follow), and a native call only if the message is the fence. Source: Google's notes on function calling with Gemma 3.
"""

from __future__ import annotations

import re

from lmagent.core.patterns import late
from lmagent.providers.formats import bare, pycalls
from lmagent.providers.formats.base import Found, Source
from lmagent.providers.formats.markup import BY_OPENER, HERE, INSIDE, LINES, native, quiet
from lmagent.providers.formats.pycalls import NotACall

_ITEM = late(r" {0,3}(?:[-*+•]|\d{1,3}[.)])[ \t]+(?P<marks>`{3,}|~{3,})[^`\n]*\Z")
_OPEN = late(r"(?P<marks>`{3,}|~{3,})[ \t]*(?P<info>[^\n`]*)(?:\n|\Z)")

_JSON = (
    "",
    "json",
    "json5",
    "jsonc",
    "tool_call",
    "tool_calls",
    "tool",
    "tools",
    "function",
    "function_call",
    "text",
    "plaintext",
    "tool_use",
    "xml",
    "action",
)
_MARKS = ("```", "~~~")
_CALLED = ("tool_call", "tool_calls", "function_call", "tool")
_CODE = ("tool_code", "tool_call_code")
_RESULTS = ("tool_output", "tool_outputs", "tool_result", "tool_response", "output")
_CALLISH = late(bare.CALLISH)
_PRINTED = late(r"(?:(?:result|response|output|[a-z_]\w*)\s*=\s*)?(?:print\(\s*)?")


def opening(text: str, at: int) -> re.Match[str] | None:
    """Match the line that opens a fence; return None if inline code begins there."""
    return _OPEN.match(text, at)


def closing(marks: str, indent: str = "[ ]{0,3}") -> re.Pattern[str]:
    return re.compile(rf"(?m)^{indent}{re.escape(marks[0])}{{{min(len(marks), 1000)},}}[ \t\r]*(?=\n|\Z)")


def may_call(head: re.Match[str], first: str) -> bool:
    """Return whether a fence may hold calls: by its opening line and the first character in it."""
    info = _info(head)
    return info in (*_CODE, *_CALLED) or (info in _JSON and first in ("{", "["))


def in_item(line: str) -> re.Pattern[str] | None:
    """Return a pattern of the line that closes the fence at the beginning of a list's item; None without a fence."""
    found = _ITEM.match(line)
    return closing(found["marks"], r"[ \t]*") if found else None


def read(source: Source, head: re.Match[str], *, called: bool) -> Found | None:
    """Read the calls in a fence and in those directly after it; return None if it is text.

    Args:
        source: the text; `begins` if the fence is its beginning.
        head: the line that opens it.
        called: calls precede it, so that a fence with a result is an invented one.
    """
    info = _info(head)
    if info in _RESULTS and called:
        end = source.find("\n" + head["marks"], head.end() - 1)
        return Found(end=end + 1 + len(head["marks"]) if end >= 0 else source.end)
    total, first = Found(end=head.end()), True
    while True:
        one = _one(source, head, info, alone=first and source.begins)
        if one is None:
            return None
        if not total.add(one):
            return total
        at = source.skip(one.end)
        while word := quiet(source.text, at):
            at = source.skip(at + len(word))
        if at >= source.end or (info in _CODE and source.begins):
            return total
        if source.text[at] not in "`~" or (following := opening(source.text, at)) is None:
            return None
        head, first = following, False
        info = _info(head)
        if info in _RESULTS:
            return total


def _info(head: re.Match[str]) -> str:
    return head["info"].strip().split(" ", 1)[0].lower()


def _one(source: Source, head: re.Match[str], info: str, *, alone: bool) -> Found | None:
    found = _read_inside(source, head.end(), info)
    for call in found.calls if found is not None else ():
        call.format = "fenced-json" if info in _JSON else "tool-code"
    if found is None and alone:
        found = _natives(source, head.end())
    if found is None or found.cut is not None:
        return found
    at = source.skip(found.end)
    if not source.starts(at, head["marks"]) and at < source.end:
        return None
    found.end = min(at + len(head["marks"]), source.end)
    return found


def _natives(source: Source, at: int) -> Found | None:
    found = Found(end=at)
    while True:
        at = source.skip(found.end)
        opened = INSIDE.match(source.text, at)
        if opened is None or opened[0] not in BY_OPENER:
            return found if found.items else _steps(source, at)
        one = native(source, opened[0], opened.end())
        if one is None or one.header:
            return None
        if not found.add(one):
            return found


def _steps(source: Source, at: int) -> Found | None:
    """Read a fence that is a format for line beginnings; JSON was tried before, and Python is code here."""
    opened = HERE.match(source.text, at)
    kind = (opened.lastgroup or "") if opened else ""
    if opened is None or not kind[1:2].isdigit() or LINES[int(kind[1:])].name in ("json", "python"):
        return None
    found = LINES[int(kind[1:])].find(source, opened.start(kind), opened[kind])
    return found if found is not None and found.calls else None


def _read_inside(source: Source, at: int, info: str) -> Found | None:
    at = source.skip(at)
    if info in _CODE or (info in _CALLED and source.text[at : at + 1] not in ("{", "[", "<")):
        return _read_code(source, at)
    if info not in _JSON or source.text[at : at + 1] not in ("{", "["):
        return None
    if not source.match(_CALLISH, at):
        return None
    return bare.read_json(source, at, "", _MARKS)


def _read_code(source: Source, at: int) -> Found | None:
    """Read Gemma's calls: Python, printed or not, of known tools only."""
    found = Found(end=at)
    try:
        while found.end < source.end and source.text[found.end] != "`":
            if source.text[found.end] == "[":
                found.add(pycalls.read_list(source, found.end))
            elif not _read_printed(source, found):
                break
            if found.cut is not None:
                break
            found.end = source.skip(found.end)
    except NotACall:
        return None
    if not all(source.tools.known(call.name) for call in found.calls):
        return None
    return found if found.items or (found.cut and source.tools.known(found.cut)) else None


def _read_printed(source: Source, found: Found) -> bool:
    wrapped = _PRINTED.match(source.text, found.end)
    if wrapped is None:
        raise NotACall
    found.end = wrapped.end()
    if not pycalls.read_next(source, found):
        return False
    if "print(" in wrapped[0]:
        if source.text[found.end : found.end + 1] != ")":
            raise NotACall
        found.end += 1
    return True
