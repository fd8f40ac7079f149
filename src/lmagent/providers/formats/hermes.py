"""Hermes, Qwen 2.5 and 3, Granite 4 and many more: `<tool_call>{"name": …, "arguments": {…}}</tool_call>`.

Also the tags that models trained on it mix it up with. Source: the chat templates of Qwen2.5 and Hermes 2 Pro.
"""

from lmagent.providers.formats import jsoncalls, pycalls
from lmagent.providers.formats.base import Format

_NEXT = ("<tool_call>",)

FORMATS = (
    Format(
        name="hermes",
        openers=("<tool_call>",),
        read=jsoncalls.between("hermes", ("</tool_call>", "<tool_call|>", "</tool_calls>")),
        quiet=("</tool_call>",),
    ),
    Format(name="hermes", openers=("<tool_call>",), read=pycalls.between("hermes", ("</tool_call>",))),
    # Also the tag around the list of tools in the prompt, which models repeat: only what can be nothing but a call.
    Format(
        name="hermes", openers=("<tools>",), read=jsoncalls.between("hermes", ("</tools>",), _NEXT, jsoncalls.anchored)
    ),
    Format(name="hermes", openers=("<toolcall>",), read=jsoncalls.between("hermes", ("</toolcall>",), _NEXT)),
    Format(name="hermes", openers=("<tool_use>",), read=jsoncalls.between("hermes", ("</tool_use>",), _NEXT)),
    Format(name="hermes", openers=("<tool>",), read=jsoncalls.between("hermes", ("</tool>",), _NEXT)),
    Format(
        name="longcat",
        openers=("<longcat_tool_call>",),
        read=jsoncalls.between("longcat", ("</longcat_tool_call>",)),
    ),
)
