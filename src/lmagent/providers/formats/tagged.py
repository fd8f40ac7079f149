"""Formats that are JSON, or calls in Python's form, between two tokens: most are one line each.

Hermes, Qwen 2.5 and 3, Granite 4 and many more (`<tool_call>`, with the tags that models trained on it mix it up with),
LongCat, Cohere's Command R7B and A (`<|START_ACTION|>`), Granite (`<|tool_call|>` to 3.3, `<function_call>` for 20b),
Phi-4-mini (`<|tool_call|>…<|/tool_call|>`, `functools[…]`), Nemotron (`<TOOLCALL>`), MiniMax M1, Jamba and Hunyuan
(`<tool_calls>`), Kimi-Dev, LFM2 (`<|tool_call_start|>[name(key="value")]<|tool_call_end|>`, or JSON), InternLM 2
(`<|action_start|><|plugin|>{…}<|action_end|>`, or code to run), Apertus
(`<|tools_prefix|>[{"name": {arguments}}, …]<|tools_suffix|>`). Source: the models' chat templates, LFM2's card,
InternLM's chat format document.
"""

from lmagent.providers.formats import jsoncalls, pycalls
from lmagent.providers.formats.base import Format, Found, Source
from lmagent.providers.formats.tokens import code_call

_NEXT = ("<tool_call>",)
_LFM2_OPEN, _LFM2_ENDS = ("<|tool_call_start|>",), ("<|tool_call_end|>",)
_INTERNLM_ENDS = ("<|action_end|>",)
_internlm_plugin = jsoncalls.between(_INTERNLM_ENDS)


def _internlm(source: Source, at: int, opener: str) -> Found | None:
    place = source.skip(at)
    kind = source.starts(place, "<|plugin|>", "<|interpreter|>") if opener == "<|action_start|>" else "<|plugin|>"
    place += len(kind) if opener == "<|action_start|>" else 0
    if kind == "<|interpreter|>":
        return code_call(source, place, _INTERNLM_ENDS)
    return _internlm_plugin(source, place, "<|plugin|>")


_APERTUS_ENDS = ("<|tools_suffix|>",)


def _functools(source: Source, at: int, opener: str) -> Found | None:
    return jsoncalls.between(())(source, at + len("functools"), "\0")


FORMATS = (
    Format(
        name="hermes",
        openers=("<tool_call>",),
        read=jsoncalls.between(("</tool_call>", "<tool_call|>", "</tool_calls>")),
        quiet=("</tool_call>",),
    ),
    Format(name="hermes", openers=("<tool_call>",), read=pycalls.between(("</tool_call>",))),
    # Also the tag around the list of tools in the prompt, which models repeat: only an unmistakable call counts.
    Format(name="hermes", openers=("<tools>",), read=jsoncalls.between(("</tools>",), _NEXT, jsoncalls.anchored)),
    Format(name="hermes", openers=("<toolcall>",), read=jsoncalls.between(("</toolcall>",), _NEXT)),
    Format(name="hermes", openers=("<tool_use>",), read=jsoncalls.between(("</tool_use>",), _NEXT)),
    Format(name="hermes", openers=("<tool>",), read=jsoncalls.between(("</tool>",), _NEXT)),
    Format(name="longcat", openers=("<longcat_tool_call>",), read=jsoncalls.between(("</longcat_tool_call>",))),
    Format(
        name="cohere-r7b",
        openers=("<|START_ACTION|>",),
        read=jsoncalls.between(("<|END_ACTION|>",)),
        quiet=("<|END_ACTION|>", "<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"),
    ),
    Format(
        name="granite",
        openers=("<|tool_call|>",),
        read=jsoncalls.between(("<|/tool_call|>", "<|end_of_text|>", "</tool_call>")),
        quiet=("<|end_of_text|>", "<|/tool_call|>"),
    ),
    Format(name="granite", openers=("<function_call>",), read=jsoncalls.between(("</function_call>",))),
    Format(name="granite", openers=("<functioncall>",), read=jsoncalls.between(("</functioncall>",))),
    Format(name="phi-4-mini", line=r"functools\b", read=_functools),
    Format(name="nemotron", openers=("<TOOLCALL>",), read=jsoncalls.between(("</TOOLCALL>",))),
    Format(
        name="minimax-m1",
        openers=("<tool_calls>",),
        read=jsoncalls.between(("</tool_calls>",)),
        quiet=("</tool_calls>",),
    ),
    Format(name="lfm2", openers=_LFM2_OPEN, read=pycalls.between(_LFM2_ENDS), quiet=_LFM2_ENDS),
    Format(name="lfm2", openers=_LFM2_OPEN, read=jsoncalls.between(_LFM2_ENDS)),
    Format(name="internlm", openers=("<|action_start|>", "<|plugin|>"), read=_internlm, quiet=_INTERNLM_ENDS),
    Format(
        name="apertus",
        openers=("<|tools_prefix|>",),
        read=jsoncalls.between(_APERTUS_ENDS),
        quiet=(*_APERTUS_ENDS, "<|assistant_end|>"),
    ),
)
