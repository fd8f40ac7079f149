"""Formats with an element for each call.

Qwen3-Coder, Nemotron 3 Nano: `<tool_call><function=name><parameter=key>value</parameter></function></tool_call>`; the
outer tag is forgotten at times, and the template puts each value on lines of its own. Seed-OSS: the same in
`<seed:tool_call>`. Functionary 3.1, Llama 3.1: a JSON object in `<function=name>`.

GLM-4.5 and later: `<tool_call>name <arg_key>k</arg_key> <arg_value>v</arg_value> </tool_call>`; Hunyuan's later models
put `<tool_sep>` after the name. GLM-4: name and JSON on two lines.

Claude, MiniMax M2, Step 3, DeepSeek V3.2 and V4 (DSML): `<invoke name="x"><parameter name="k">v</parameter></invoke>`
in a wrapper. OLMo 3 uses Claude's wrapper around calls in Python's form. Also `<tool name="x">{…}</tool>`, with other
words for `tool`, around JSON or elements.

Source: the models' chat templates, Anthropic's and MiniMax's documentation.
"""

from lmagent.core.loosejson import Broken, Cut
from lmagent.core.patterns import late
from lmagent.providers.formats import jsoncalls, pycalls, xmlcalls
from lmagent.providers.formats.base import Format, Found, Source

_QWEN = xmlcalls.tags(
    call=r"<function=[\"']?(?P<name>[^\s>\"'<{}]{1,128})[\"']?\s*>",
    call_end=r"</function>",
    value=r"<parameter=[\"']?(?P<key>[^>\"'<\n]{1,128})[\"']?>",
    value_end=r"</parameter>",
    over=r"</tool_call>|</seed:tool_call>|<\|eom_id\|>|<\|eot_id\|>",
)
_SLIP = late(r"<function[=/](?P<name>[A-Za-z_][\w.-]{0,127})>?\s*(?=\{)")
_SLIP_END = late(r"\s*>?\s*(?:</function>|\Z)")
_QWEN_ENDS = ("</tool_call>", "</seed:tool_call>")


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
    return Found(end=ended.end(), items=[source.call(named["name"], value, start, end)])


_QWEN_FORMATS = (
    Format(name="qwen3-coder", openers=("<tool_call>",), read=xmlcalls.inside(_QWEN, _QWEN_ENDS)),
    Format(name="qwen3-coder", openers=("<function=",), read=xmlcalls.alone(_QWEN, _QWEN_ENDS)),
    Format(name="llama-3", openers=("<function=", "<function/"), read=_read_slip),
    Format(
        name="seed-oss",
        openers=("<seed:tool_call>",),
        read=xmlcalls.inside(_QWEN, _QWEN_ENDS),
        quiet=("</seed:tool_call>", "<seed:eos>"),
    ),
)

_GLM = xmlcalls.tags(
    call=r"<tool_call>\s*(?P<name>[A-Za-z_][\w.:-]{0,127})\s*(?:<tool_sep>\s*)?(?=<arg_key>|</tool_call>|\{|\Z)",
    call_end=r"</tool_call>",
    value=r"<arg_key>(?P<key>[^<]{1,128})</arg_key>\s*<arg_value>",
    value_end=r"</arg_value>",
    over=r"<\|(?:observation|user|endoftext)\|>",
)
_GLM_FOUR = late(r"([A-Za-z_][\w.-]{0,127})[ \t]*\r?\n[ \t]*(?=\{)")


def _read_glm_four(source: Source, at: int, _opener: str) -> Found | None:
    """Read the name on a line, and its arguments as JSON on the next."""
    named = source.match(_GLM_FOUR, at)
    if named is None or not source.tools.known(named[1]):
        return None
    try:
        value, end = source.value(named.end())
    except (Cut, Broken):
        return None
    return Found(end=end, items=[source.call(named[1], value, at, end)])


_GLM_FORMATS = (
    Format(
        name="glm-4.5",
        openers=("<tool_call>",),
        read=xmlcalls.alone(_GLM, ("</tool_call>",)),
        quiet=("<|observation|>", "<|user|>", "<|assistant|>"),
    ),
    Format(name="glm-4", line=r"[A-Za-z_][\w.-]{0,127}[ \t]*\r?\n[ \t]*(?:\{|\Z)", read=_read_glm_four, bare=True),
)

_PREFIX = r"(?:antml:|steptml:|minimax:)?"
_CLAUDE_TAGS = xmlcalls.tags(
    call=rf"<{_PREFIX}invoke\s+name=[\"']?(?P<name>[^\"'>]{{1,128}})[\"']?\s*>",
    call_end=rf"</{_PREFIX}invoke>",
    value=rf"<{_PREFIX}parameter\s+name=[\"']?(?P<key>[^\"'>]{{1,128}})[\"']?\s*>",
    value_end=rf"</{_PREFIX}parameter>",
    over=rf"</{_PREFIX}(?:function_calls|tool_calls?)>",
)
_OWN = "antml:"
_CLAUDE = ("</function_calls>", f"</{_OWN}function_calls>", "</tool_calls>")
_MINIMAX = ("</minimax:tool_call>", "</tool_call>")


_WRAPPERS = ("<function_calls>", f"<{_OWN}function_calls>", "<tool_calls>")


_TOOL_WORDS = ("tool", "tool_call", "tool_use", "function", "function_call")
_TOOL_EMPTY = late(rf"<(?:{'|'.join(_TOOL_WORDS)})\s+name\s*=\s*[\"']([^\"'>]{{1,128}})[\"']\s*/>")
_TOOL_TAGS = xmlcalls.tags(
    call=rf"<(?:{'|'.join(_TOOL_WORDS)})\s+name\s*=\s*[\"']?(?P<name>[^\"'>\s/]{{1,128}})[\"']?\s*>",
    call_end=rf"</(?:{'|'.join(_TOOL_WORDS)})>",
    value=r"<(?:parameter|param|arg|argument)\s+name\s*=\s*[\"']?(?P<key>[^\"'>]{1,128})[\"']?\s*>",
    value_end=r"</(?:parameter|param|arg|argument)>",
)
_read_tool_tags = xmlcalls.alone(_TOOL_TAGS, ())


def _read_tool(source: Source, at: int, opener: str) -> Found | None:
    start = at - len(opener)
    if empty := source.match(_TOOL_EMPTY, start):
        return Found(end=empty.end(), items=[source.call(empty[1], {}, start, empty.end())])
    return _read_tool_tags(source, at, opener)


_CLAUDE_FORMATS = (
    Format(name="claude", openers=_WRAPPERS, read=xmlcalls.inside(_CLAUDE_TAGS, _CLAUDE), quiet=_CLAUDE[:2]),
    Format(name="olmo-3", openers=("<function_calls>",), read=pycalls.between(("</function_calls>",))),
    Format(name="claude", openers=("<function_calls>",), read=jsoncalls.between(("</function_calls>",))),
    Format(
        name="claude",
        openers=("<invoke name=", f"<{_OWN}invoke name=", "<steptml:invoke name="),
        read=xmlcalls.alone(_CLAUDE_TAGS, (*_CLAUDE, *_MINIMAX)),
        quiet=("<｜tool_calls_begin｜>", "<｜tool_call_begin｜>", "<｜tool_call_end｜>", "<｜tool_calls_end｜>"),
    ),
    Format(
        name="minimax-m2",
        openers=("<minimax:tool_call>",),
        read=xmlcalls.inside(_CLAUDE_TAGS, _MINIMAX),
        quiet=("</minimax:tool_call>", "[e~["),
    ),
    Format(name="minimax-m2", openers=("<tool_call>",), read=xmlcalls.inside(_CLAUDE_TAGS, _MINIMAX)),
    Format(name="tool-tag", openers=tuple(f"<{word} name=" for word in _TOOL_WORDS), read=_read_tool),
)

_BAR = r"[｜|]{1,2}DSML[｜|]{1,2}\s*"
_DSML = xmlcalls.tags(
    call=rf"<{_BAR}invoke\s+name=[\"'](?P<name>[^\"'>]{{1,128}})[\"']\s*>",
    call_end=rf"</{_BAR}invoke>",
    value=rf"<{_BAR}parameter\s+name=[\"'](?P<key>[^\"'>]{{1,128}})[\"'](?:\s+string=[\"'](?P<text>true|false)[\"'])?\s*>",
    value_end=rf"</{_BAR}parameter>",
    over=rf"</{_BAR}(?:function_calls|tool_calls|calls)>",
)
_DSML_WRAPPERS = tuple(
    f"{bar}DSML{bar}{word}>" for bar in ("｜", "|", "｜｜") for word in ("function_calls", "tool_calls", "calls")
)
_DSML_ENDS = tuple(f"</{word}" for word in _DSML_WRAPPERS)
_DSML_FORMATS = (
    Format(
        name="deepseek-v3.2",
        openers=tuple(f"<{word}" for word in _DSML_WRAPPERS),
        read=xmlcalls.inside(_DSML, _DSML_ENDS),
        quiet=_DSML_ENDS,
    ),
    Format(name="deepseek-v3.2", openers=("<｜DSML｜invoke", "<|DSML|invoke"), read=xmlcalls.alone(_DSML, _DSML_ENDS)),
)

FORMATS = (*_QWEN_FORMATS, *_GLM_FORMATS, *_CLAUDE_FORMATS, *_DSML_FORMATS)
