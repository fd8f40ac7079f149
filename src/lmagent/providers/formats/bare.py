"""Calls without markup: JSON (Llama 3, xLAM, OpenAI's shapes) and Python's form (Llama 3.2, the programs replaced).

Only calls of tools that the request offers, in the exact shape of a call; other text stays text.
"""

from lmagent.core import repair
from lmagent.core.patterns import late
from lmagent.providers.formats import jsoncalls, pycalls
from lmagent.providers.formats.base import Format, Found, Source, end_of
from lmagent.providers.formats.pycalls import NotACall

_KEYS = "|".join(
    (
        *jsoncalls.NAME_KEYS,
        *jsoncalls.ARGUMENT_KEYS,
        *jsoncalls.ID_KEYS,
        "type",
        "tool_calls",
        "tool_uses",
        "function_calls",
        "calls",
        "function_call",
        "tool_call",
        "tool_use",
        "thought",
        "role",
        "content",
    )
)
CALLISH = rf"(?:\[\s*)?\{{\s*[\"'“]?(?:{_KEYS})[\"'”]?\s*:"
"""The beginning of JSON that may be a call."""
_CALLISH = late(CALLISH)
_NAMED = late(
    rf"\s*(?:\[\s*)?\{{\s*[\"'“](?:{'|'.join(jsoncalls.NAME_KEYS)})[\"'”]\s*:\s*[\"'“]([^\"'”]{{1,128}})[\"'”]\s*,"
)


def read_json(source: Source, at: int, opener: str, stops: tuple[str, ...] = ()) -> Found | None:
    """Read one or more calls as JSON, up to markup that may close an open one."""
    if not source.match(_CALLISH, at):
        return None
    found, _ = jsoncalls.read_values(source, at, stops, jsoncalls.anchored)
    if found is None:
        return None
    if found.cut is not None:
        named = _NAMED.match(source.text, at) if not found.items else None
        if not found.items and not (named and source.tools.known(named[1])):
            return None
        found.cut = source.tools.plain(found.cut)
    return found


def _read_list(source: Source, at: int, opener: str) -> Found | None:
    try:
        found = pycalls.read_list(source, at)
    except NotACall:
        return None
    return found if found.items and _known(source, found) else None


def _read_python(source: Source, at: int, opener: str) -> Found | None:
    """Read lines that are each a call of a known tool, with arguments that fit its schema."""
    named = source.match(pycalls.CALL, at)
    if named is None or not source.tools.known(named[1]):
        return None
    found = Found(end=at)
    while named and source.tools.known(named[1]):
        try:
            if not pycalls.read_next(source, found):
                return found
        except NotACall:
            return found if found.items else None
        call = found.calls[-1]
        if not _takes(source, call.name, call.arguments):
            return None
        blank = source.text[end_of(source.text, found.end) : found.end]
        if "\n" not in blank and found.end < source.end:
            return None  # the line continues
        named = pycalls.CALL.match(source.text, found.end)
    return found


def _takes(source: Source, name: str, arguments: object) -> bool:
    known = source.tools.properties(name)
    if not isinstance(arguments, dict) or not repair.fits(arguments, source.tools.schema(name)):
        return False
    return all(key in known for key in arguments)  # pyright: ignore[reportUnknownVariableType]


def _known(source: Source, found: Found) -> bool:
    return all(source.tools.known(call.name) for call in found.calls)


FORMATS = (
    Format(name="json", line=r"\{|\[\s*(?:\{|\Z)", read=read_json, bare=True),
    Format(name="pythonic", line=r"\[\s*(?:[A-Za-z_][\w.-]*\(|\Z)", read=_read_list, bare=True),
    Format(name="python", line=r"[A-Za-z_][\w.]*\(", read=_read_python, bare=True),
)
