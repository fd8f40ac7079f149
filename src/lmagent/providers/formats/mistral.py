"""Mistral: `[TOOL_CALLS]` before a JSON list (to v7), `name[CALL_ID]id[ARGS]{…}` (v11) or `name[ARGS]{…}` (v13).

Some servers leave out `[ARGS]`. Source: mistral-common's instruct tokenizers.
"""

import re

from lmagent.providers.formats import jsoncalls
from lmagent.providers.formats.base import Format, Found, Source

_TOKEN = "[TOOL_CALLS]"
_ENDS = ("[/TOOL_CALLS]", "</s>")
_NAMED = re.compile(
    r"\s*([A-Za-z_][\w.-]{0,127})\s*(?:\[CALL_ID\]\s*([\w-]{0,64})\s*)?(\[ARGS\])?\s*(?=(\{)?)", re.ASCII
)
_list = jsoncalls.between("mistral", _ENDS, (_TOKEN,))


def _read(source: Source, at: int, opener: str) -> Found | None:
    place = source.skip(at)
    if source.text[place : place + 1] in ("[", "{"):
        return _list(source, at, opener)
    found = Found(end=at)
    while named := source.match(_NAMED, found.end):
        if not (named[3] or named[4]):
            if not found.items and named.end() >= source.end and source.tools.known(named[1]):
                return Found(end=source.end, cut=named[1])
            break
        one = jsoncalls.named(source, named[1], named.end(), (*_ENDS, _TOKEN), "mistral", named[2] or "")
        found.items += one.items
        found.end, found.cut = one.end, one.cut
        if one.cut is not None or one.calls[0].fault:
            return found
        found.end = _comma(source, found.end)
        if source.starts(source.skip(found.end), _TOKEN):
            break
    return jsoncalls.closed(source, found, _ENDS) if found.items else None


def _comma(source: Source, at: int) -> int:
    place = source.skip(at)
    return place + 1 if source.text[place : place + 1] in (",", ";") else at


def _read_bare(source: Source, at: int, _opener: str) -> Found | None:
    """Read the same without a token that the server has swallowed: of known tools only."""
    found = _read(source, at, _TOKEN)
    named = _NAMED.match(source.text, at)
    if found is None or named is None or not named[4] or not source.tools.known(named[1]):
        return None
    return found if all(source.tools.known(call.name) and not call.fault for call in found.calls) else None


FORMATS = (
    Format(name="mistral", openers=(_TOKEN,), read=_read, quiet=_ENDS),
    Format(
        name="mistral",
        line=r"[A-Za-z_][\w.-]{0,127}(?:\[CALL_ID\][\w-]{0,64})?(?:\[ARGS\]|\{)",
        read=_read_bare,
        bare=True,
    ),
)
