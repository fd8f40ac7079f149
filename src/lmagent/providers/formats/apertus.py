"""Apertus: `<|tools_prefix|>[{"name": {arguments}}, …]<|tools_suffix|>`.

Source: the model's chat template.
"""

from typing import Any, cast

from lmagent.providers.formats import jsoncalls
from lmagent.providers.formats.base import Format, Found, FoundCall, Source, Toolset, make_call

_ENDS = ("<|tools_suffix|>",)


def _shape(value: Any, tools: Toolset, raw: str, format: str) -> list[FoundCall] | None:
    """Every key of the object is a tool, its value the arguments."""
    entry = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    if len(entry) > 1 or "name" in entry:
        return jsoncalls.shaped(value, tools, raw, format)
    return [make_call(tools, name, arguments, raw, format) for name, arguments in entry.items()] or None


def _read(source: Source, at: int, opener: str) -> Found | None:
    at = source.skip(at)
    if source.text[at : at + 1] not in ("[", "{"):
        return None
    found, _ = jsoncalls.read_values(source, at, _ENDS, "apertus", _shape)
    return jsoncalls.closed(source, found, _ENDS) if found else _plain(source, at, opener)


_plain = jsoncalls.between("apertus", _ENDS)

FORMATS = (Format(name="apertus", openers=("<|tools_prefix|>",), read=_read, quiet=(*_ENDS, "<|assistant_end|>")),)
