"""Kimi K2: `<|tool_call_begin|>functions.name:0<|tool_call_argument_begin|>{…}<|tool_call_end|>` in a section of calls.

Source: the model's own guide to parsing its calls.
"""

import re

from lmagent.providers.formats import jsoncalls
from lmagent.providers.formats.base import Format, Found, Source, unprefixed

_BEGIN, _END = "<|tool_call_begin|>", "<|tool_call_end|>"
_SECTION = ("<|tool_calls_section_begin|>", "<|tool_call_section_begin|>")
_SECTION_END = ("<|tool_calls_section_end|>", "<|tool_call_section_end|>")
_NAMED = re.compile(r"\s*([\w.:-]{1,160})\s*<\|tool_call_argument_begin\|>\s*")
_CUT = re.compile(r"\s*[\w.:-]{0,160}\s*(?:<[^>]*>?\s*)?\Z")


def _read(source: Source, at: int, opener: str) -> Found | None:
    found = Found(end=at - len(opener) if opener == _BEGIN else at)
    while True:
        place = source.skip(found.end)
        if not source.starts(place, _BEGIN):
            break
        named = source.match(_NAMED, place + len(_BEGIN))
        if named is None:
            if source.match(_CUT, place + len(_BEGIN)):
                found.end, found.cut = source.end, ""
            break
        name = source.tools.plain(unprefixed(named[1]))
        one = jsoncalls.named(source, name, named.end(), (_END, *_SECTION_END), "kimi-k2", named[1])
        found.items += one.items
        found.end, found.cut = one.end, one.cut
        if one.cut is not None:
            return found
        place = source.skip(found.end)
        found.end = place + len(source.starts(place, _END))
    if not found.items and found.cut is None:
        return None
    return jsoncalls.closed(source, found, _SECTION_END)


FORMATS = (Format(name="kimi-k2", openers=(*_SECTION, _BEGIN), read=_read, quiet=(*_SECTION_END, _END)),)
