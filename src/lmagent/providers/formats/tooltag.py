"""`<tool name="x">{…}</tool>`, and the same with other words for `tool`; the arguments may also be elements.

Source: the system prompt of one of the programs that this one replaces; MiniCPM 5 for `<function name="x">`.
"""

import re

from lmagent.providers.formats import xmlcalls
from lmagent.providers.formats.base import Format, Found, Source

_WORDS = ("tool", "tool_call", "tool_use", "function", "function_call")
_EMPTY = re.compile(rf"<(?:{'|'.join(_WORDS)})\s+name\s*=\s*[\"']([^\"'>]{{1,128}})[\"']\s*/>")
_TAGS = xmlcalls.tags(
    call=rf"<(?:{'|'.join(_WORDS)})\s+name\s*=\s*[\"']?(?P<name>[^\"'>\s/]{{1,128}})[\"']?\s*>",
    call_end=rf"</(?:{'|'.join(_WORDS)})>",
    value=r"<(?:parameter|param|arg|argument)\s+name\s*=\s*[\"']?(?P<key>[^\"'>]{1,128})[\"']?\s*>",
    value_end=r"</(?:parameter|param|arg|argument)>",
)
_read_tags = xmlcalls.alone("tool-tag", _TAGS, ())


def _read(source: Source, at: int, opener: str) -> Found | None:
    start = at - len(opener)
    if empty := source.match(_EMPTY, start):
        return Found(end=empty.end(), items=[source.call(empty[1], {}, start, empty.end(), "tool-tag")])
    return _read_tags(source, at, opener)


FORMATS = (Format(name="tool-tag", openers=tuple(f"<{word} name=" for word in _WORDS), read=_read),)
