"""Qwen3-Coder, Nemotron 3 Nano, Seed-OSS: `<function=name><parameter=key>value</parameter></function>`.

In `<tool_call>` (Qwen, which forgets it at times) or `<seed:tool_call>` (Seed-OSS). The template puts each value on
lines of its own. Functionary 3.1 and Llama 3.1's custom calls put a JSON object into `<function=name>` instead.
Source: the models' chat templates.
"""

from lmagent.providers.formats import xmlcalls
from lmagent.providers.formats.base import Format

TAGS = xmlcalls.tags(
    call=r"<function=[\"']?(?P<name>[^\s>\"'<{}]{1,128})[\"']?\s*>",
    call_end=r"</function>",
    value=r"<parameter=[\"']?(?P<key>[^>\"'<\n]{1,128})[\"']?>",
    value_end=r"</parameter>",
    over=r"</tool_call>|</seed:tool_call>|<\|eom_id\|>|<\|eot_id\|>",
)
_ENDS = ("</tool_call>", "</seed:tool_call>")

FORMATS = (
    Format(name="qwen3-coder", openers=("<tool_call>",), read=xmlcalls.inside("qwen3-coder", TAGS, _ENDS)),
    Format(name="qwen3-coder", openers=("<function=",), read=xmlcalls.alone("qwen3-coder", TAGS, _ENDS)),
    Format(
        name="seed-oss",
        openers=("<seed:tool_call>",),
        read=xmlcalls.inside("seed-oss", TAGS, _ENDS),
        quiet=("</seed:tool_call>", "<seed:eos>"),
    ),
)
