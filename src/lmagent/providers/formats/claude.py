"""Calls in XML that name tools and arguments in attributes.

Claude, MiniMax M2, Step 3: `<invoke name="x"><parameter name="k">v</parameter></invoke>` in a wrapper.

Claude's wrapper is `<function_calls>`, with or without a prefix, MiniMax's `<minimax:tool_call>`. An older form
of Claude's names the tool in an element of its own. OLMo 3 uses the same wrapper around calls in Python's form, one a
line. Also `<tool name="x">{…}</tool>`, with other words for `tool`: the arguments are JSON or elements. Source:
Anthropic's and MiniMax's documentation, OLMo 3's chat template, MiniCPM 5's for
`<function name="x">`, the system prompt of an earlier program.
"""

import re

from lmagent.core import repair
from lmagent.providers.formats import jsoncalls, pycalls, xmlcalls
from lmagent.providers.formats.base import Format, Found, Source

_PREFIX = r"(?:antml:|steptml:|minimax:)?"
TAGS = xmlcalls.tags(
    call=rf"<{_PREFIX}invoke\s+name=[\"']?(?P<name>[^\"'>]{{1,128}})[\"']?\s*>",
    call_end=rf"</{_PREFIX}invoke>",
    value=rf"<{_PREFIX}parameter\s+name=[\"']?(?P<key>[^\"'>]{{1,128}})[\"']?\s*>",
    value_end=rf"</{_PREFIX}parameter>",
    over=rf"</{_PREFIX}(?:function_calls|tool_calls?)>",
)
_OLD = re.compile(r"\s*<invoke>\s*<tool_name>\s*([^<]{1,128}?)\s*</tool_name>\s*")
_OLD_VALUE = re.compile(r"\s*<([\w.-]{1,128})>")
_OLD_END = re.compile(r"\s*(?:</parameters>\s*)?</invoke>")
_OWN = "antml:"
_CLAUDE = ("</function_calls>", f"</{_OWN}function_calls>", "</tool_calls>")
_MINIMAX = ("</minimax:tool_call>", "</tool_call>")


def _read_old(source: Source, at: int, _opener: str) -> Found | None:
    found = Found(end=at)
    while opened := source.match(_OLD, found.end):
        place = source.skip(opened.end())
        place += len(source.starts(place, "<parameters>"))
        name = source.tools.plain(opened[1])
        known, arguments = source.tools.properties(name), {}
        while value := source.match(_OLD_VALUE, place):
            end = source.find(f"</{value[1]}>", value.end())
            if end < 0:
                return Found(end=source.end, items=found.items, cut=name)
            text = source.text[value.end() : end]
            arguments[value[1]] = repair.fit_text(text.strip("\r\n"), known.get(value[1]) or {})
            place = end + len(value[1]) + 3
        ended = source.match(_OLD_END, place)
        if ended is None:
            return Found(end=source.end, items=found.items, cut=name) if found.items or arguments else None
        found.items.append(source.call(name, arguments, opened.start(), ended.end(), "claude"))
        found.end = ended.end()
    return jsoncalls.closed(source, found, _CLAUDE) if found.items else None


_WRAPPERS = ("<function_calls>", f"<{_OWN}function_calls>", "<tool_calls>")


_TOOL_WORDS = ("tool", "tool_call", "tool_use", "function", "function_call")
_TOOL_EMPTY = re.compile(rf"<(?:{'|'.join(_TOOL_WORDS)})\s+name\s*=\s*[\"']([^\"'>]{{1,128}})[\"']\s*/>")
_TOOL_TAGS = xmlcalls.tags(
    call=rf"<(?:{'|'.join(_TOOL_WORDS)})\s+name\s*=\s*[\"']?(?P<name>[^\"'>\s/]{{1,128}})[\"']?\s*>",
    call_end=rf"</(?:{'|'.join(_TOOL_WORDS)})>",
    value=r"<(?:parameter|param|arg|argument)\s+name\s*=\s*[\"']?(?P<key>[^\"'>]{1,128})[\"']?\s*>",
    value_end=r"</(?:parameter|param|arg|argument)>",
)
_read_tool_tags = xmlcalls.alone("tool-tag", _TOOL_TAGS, ())


def _read_tool(source: Source, at: int, opener: str) -> Found | None:
    start = at - len(opener)
    if empty := source.match(_TOOL_EMPTY, start):
        return Found(end=empty.end(), items=[source.call(empty[1], {}, start, empty.end(), "tool-tag")])
    return _read_tool_tags(source, at, opener)


FORMATS = (
    Format(name="claude", openers=_WRAPPERS, read=xmlcalls.inside("claude", TAGS, _CLAUDE), quiet=_CLAUDE[:2]),
    Format(name="claude", openers=("<function_calls>",), read=_read_old),
    Format(name="olmo-3", openers=("<function_calls>",), read=pycalls.between("olmo-3", ("</function_calls>",))),
    Format(name="claude", openers=("<function_calls>",), read=jsoncalls.between("claude", ("</function_calls>",))),
    Format(
        name="claude",
        openers=("<invoke name=", f"<{_OWN}invoke name=", "<steptml:invoke name="),
        read=xmlcalls.alone("claude", TAGS, (*_CLAUDE, *_MINIMAX)),
        quiet=("<｜tool_calls_begin｜>", "<｜tool_call_begin｜>", "<｜tool_call_end｜>", "<｜tool_calls_end｜>"),
    ),
    Format(
        name="minimax-m2",
        openers=("<minimax:tool_call>",),
        read=xmlcalls.inside("minimax-m2", TAGS, _MINIMAX),
        quiet=("</minimax:tool_call>", "[e~["),
    ),
    Format(name="minimax-m2", openers=("<tool_call>",), read=xmlcalls.inside("minimax-m2", TAGS, _MINIMAX)),
    Format(name="tool-tag", openers=tuple(f"<{word} name=" for word in _TOOL_WORDS), read=_read_tool),
)
