"""Formats that are JSON between two tokens: one line each.

Cohere's Command R7B and A (`<|START_ACTION|>`), Granite (`<|tool_call|>` to 3.3, `<function_call>` for 20b), Phi-4-mini
(`<|tool_call|>…<|/tool_call|>`, `functools[…]`), Nemotron (`<TOOLCALL>`), MiniMax M1, Jamba and Hunyuan
(`<tool_calls>`), Kimi-Dev and others. Source: the models' chat templates.
"""

from lmagent.providers.formats import jsoncalls
from lmagent.providers.formats.base import Format, Found, Source


def _functools(source: Source, at: int, opener: str) -> Found | None:
    return jsoncalls.between("phi-4-mini", ())(source, at + len("functools"), "\0")


FORMATS = (
    Format(
        name="cohere-r7b",
        openers=("<|START_ACTION|>",),
        read=jsoncalls.between("cohere-r7b", ("<|END_ACTION|>",)),
        quiet=("<|END_ACTION|>", "<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"),
    ),
    Format(
        name="granite",
        openers=("<|tool_call|>",),
        read=jsoncalls.between("granite", ("<|/tool_call|>", "<|end_of_text|>", "</tool_call>")),
        quiet=("<|end_of_text|>", "<|/tool_call|>"),
    ),
    Format(name="granite", openers=("<function_call>",), read=jsoncalls.between("granite", ("</function_call>",))),
    Format(name="granite", openers=("<functioncall>",), read=jsoncalls.between("granite", ("</functioncall>",))),
    Format(name="phi-4-mini", line=r"functools\b", read=_functools),
    Format(name="nemotron", openers=("<TOOLCALL>",), read=jsoncalls.between("nemotron", ("</TOOLCALL>",))),
    Format(
        name="minimax-m1",
        openers=("<tool_calls>",),
        read=jsoncalls.between("minimax-m1", ("</tool_calls>",)),
        quiet=("</tool_calls>",),
    ),
)
