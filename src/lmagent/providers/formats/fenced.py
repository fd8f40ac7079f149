"""Calls in a Markdown fence: JSON, and Gemma 3's `tool_code`.

This reads the inside of a fence; whether calls count where the fence stands is for `fences` to judge. Source: Google's
notes on function calling with Gemma 3.
"""

from __future__ import annotations

import re

from lmagent.providers.formats import bare, pycalls
from lmagent.providers.formats.base import Found, Source
from lmagent.providers.formats.pycalls import NotACall

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
CODE = ("tool_code", "tool_call_code")
RESULTS = ("tool_output", "tool_outputs", "tool_result", "tool_response", "output")
_CALLISH = re.compile(bare.CALLISH)
_PRINTED = re.compile(r"(?:(?:result|response|output|[a-z_]\w*)\s*=\s*)?(?:print\(\s*)?")


def read(source: Source, at: int, info: str) -> Found | None:
    """The calls inside a fence, from the first character of its body; None if it holds none."""
    at = source.skip(at)
    if info in CODE or (info in _CALLED and source.text[at : at + 1] not in ("{", "[", "<")):
        return _read_code(source, at)
    if info not in _JSON or source.text[at : at + 1] not in ("{", "["):
        return None
    if not source.match(_CALLISH, at):
        return None
    found = bare.read_json(source, at, "", _MARKS)
    for call in found.calls if found else ():
        call.format = "fenced-json"
    return found


def _read_code(source: Source, at: int) -> Found | None:
    """Gemma's calls: Python, printed or not, of known tools only."""
    found = Found(end=at)
    try:
        while found.end < source.end and source.text[found.end] != "`":
            if source.text[found.end] == "[":
                listed = pycalls.read_list(source, found.end, "tool-code")
                found.items += listed.items
                found.end, found.cut = listed.end, listed.cut
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
    if not pycalls.read_next(source, found, "tool-code"):
        return False
    if "print(" in wrapped[0]:
        if source.text[found.end : found.end + 1] != ")":
            raise NotACall
        found.end += 1
    return True
