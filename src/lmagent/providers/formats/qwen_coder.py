"""Qwen3-Coder, Nemotron 3 Nano, Seed-OSS: `<function=name><parameter=key>value</parameter></function>`.

They are in `<tool_call>` (Qwen, which forgets it at times) or `<seed:tool_call>` (Seed-OSS). The template puts each
value on lines of its own. Functionary 3.1 and Llama 3.1's custom calls put a JSON object into `<function=name>`
instead. Source: the models' chat templates.
"""

import re

from lmagent.core.loosejson import Broken, Cut
from lmagent.providers.formats import xmlcalls
from lmagent.providers.formats.base import Format, Found, Source

TAGS = xmlcalls.tags(
    call=r"<function=[\"']?(?P<name>[^\s>\"'<{}]{1,128})[\"']?\s*>",
    call_end=r"</function>",
    value=r"<parameter=[\"']?(?P<key>[^>\"'<\n]{1,128})[\"']?>",
    value_end=r"</parameter>",
    over=r"</tool_call>|</seed:tool_call>|<\|eom_id\|>|<\|eot_id\|>",
)
_SLIP = re.compile(r"<function[=/](?P<name>[A-Za-z_][\w.-]{0,127})>?\s*(?=\{)")
_SLIP_END = re.compile(r"\s*>?\s*(?:</function>|\Z)")
_ENDS = ("</tool_call>", "</seed:tool_call>")


def _read_slip(source: Source, at: int, opener: str) -> Found | None:
    """Read Llama 3.1's slips, of known tools: the object inside the tag, or `/` for `=`."""
    start = at - len(opener)
    named = source.match(_SLIP, start)
    if named is None or not source.tools.known(named["name"]):
        return None
    try:
        value, end = source.value(named.end())
    except (Cut, Broken):
        return None
    ended = source.match(_SLIP_END, end)
    if ended is None:
        return None
    return Found(end=ended.end(), items=[source.call(named["name"], value, start, end, "llama-3")])


FORMATS = (
    Format(name="qwen3-coder", openers=("<tool_call>",), read=xmlcalls.inside("qwen3-coder", TAGS, _ENDS)),
    Format(name="qwen3-coder", openers=("<function=",), read=xmlcalls.alone("qwen3-coder", TAGS, _ENDS)),
    Format(name="llama-3", openers=("<function=", "<function/"), read=_read_slip),
    Format(
        name="seed-oss",
        openers=("<seed:tool_call>",),
        read=xmlcalls.inside("seed-oss", TAGS, _ENDS),
        quiet=("</seed:tool_call>", "<seed:eos>"),
    ),
)
