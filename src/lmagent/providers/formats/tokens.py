"""Formats with special tokens.

Mistral: `[TOOL_CALLS]` before a JSON list (to v7), `name[CALL_ID]id[ARGS]{…}` (v11) or `name[ARGS]{…}` (v13); some
servers leave out `[ARGS]`.

DeepSeek V3 and R1 (type, name, fenced JSON), V3.1 (name, JSON). The separators inside its tokens are U+2581, the bars
U+FF5C; models also write `_`, a blank or `\\_`, and `|`.

Kimi K2: `<|tool_call_begin|>functions.name:0<|tool_call_argument_begin|>{…}<|tool_call_end|>` in a section of calls.

Harmony (gpt-oss): `<|channel|>commentary to=functions.name <|constrain|>json<|message|>{…}<|call|>`; the recipient may
precede the channel. The analysis channel is always thought; the final one, and commentary without a recipient, is text.

Functionary 2 (`<|recipient|>name<|content|>{…}`) and 3.2 (`>>>name`, line, `{…}`); text goes to recipient `all`. The
first `>>>`, or `<|from|>assistant`, belongs to the prompt.

FunctionGemma: `<start_function_call>call:name{key:<escape>text<escape>,n:1}<end_function_call>`; Gemma 4:
`<|tool_call>call:name{key:<|"|>text<|"|>}<tool_call|>`. Strings are between marks and are not escaped; keys are bare.

Llama 3: `<|python_tag|>` before JSON, `tool.call(…)` or code; 4: `<|python_start|>[name(k="v")]<|python_end|>`.

Source: the models' chat templates, tokenizers and prompt formats, and Kimi's guide to parsing its calls.
"""

import re
from typing import Any, cast

from lmagent.core.loosejson import read_whole
from lmagent.core.patterns import late
from lmagent.providers import jsontext
from lmagent.providers.formats import jsoncalls, pycalls
from lmagent.providers.formats.base import Format, Found, FoundCall, Say, Source, unprefixed
from lmagent.providers.formats.pycalls import NotACall

_TOOL_CALLS = "[TOOL_CALLS]"
_MISTRAL_ENDS = ("[/TOOL_CALLS]", "</s>")
_MISTRAL_HEAD = r"[\s,;]*(?P<name>[A-Za-z_][\w.-]{0,127})\s*(?:\[CALL_ID\]\s*(?P<id>[\w-]{0,64})\s*)?"
_MISTRAL = late(rf"{_MISTRAL_HEAD}(?:\[ARGS\]\s*|(?=\{{))", re.ASCII)
_MISTRAL_CUT = late(rf"{_MISTRAL_HEAD}\Z", re.ASCII)
_mistral_list = jsoncalls.between(_MISTRAL_ENDS, (_TOOL_CALLS,))


def _read_mistral(source: Source, at: int, opener: str) -> Found | None:
    place = source.skip(at)
    if source.text[place : place + 1] in ("[", "{"):
        return _mistral_list(source, at, opener)
    if (named := source.match(_MISTRAL_CUT, at)) and source.tools.known(named["name"]):
        return Found(end=source.end, cut=named["name"])
    found = jsoncalls.sequence(source, at, _MISTRAL, (*_MISTRAL_ENDS, _TOOL_CALLS))
    return jsoncalls.closed(source, found, _MISTRAL_ENDS) if found is not None else None


def _read_mistral_bare(source: Source, at: int, _opener: str) -> Found | None:
    """Read the same without a token that the server has swallowed: of known tools only."""
    found = _read_mistral(source, at, _TOOL_CALLS)
    named = source.match(_MISTRAL, at)
    if found is None or named is None or not source.tools.known(named["name"]):
        return None
    return found if all(source.tools.known(call.name) and not call.fault for call in found.calls) else None


_MISTRAL_FORMATS = (
    Format(name="mistral", openers=(_TOOL_CALLS,), read=_read_mistral, quiet=_MISTRAL_ENDS),
    Format(
        name="mistral",
        line=r"[A-Za-z_][\w.-]{0,127}(?:\[CALL_ID\][\w-]{0,64})?(?:\[ARGS\]|\{)",
        read=_read_mistral_bare,
        bare=True,
    ),
)

_SEPARATORS = ("▁", "_", " ", "\\_")
_BARS = ("｜", "|")


def _spelled(*words: str) -> tuple[str, ...]:
    bars = [(left, right) for left in _BARS for right in _BARS]
    return tuple(f"<{left}{gap.join(words)}{right}>" for left, right in bars for gap in _SEPARATORS)


_CALLS, _CALL = _spelled("tool", "calls", "begin"), _spelled("tool", "call", "begin")
_CALLS_END, _CALL_END = _spelled("tool", "calls", "end"), _spelled("tool", "call", "end")
_DEEPSEEK_STOPS = (*_CALL_END, *_CALLS_END, *_CALL)
_GAP = r"(?:▁|_| |\\_)"
_DEEPSEEK_BEGIN = rf"\s*<[｜|]tool{_GAP}call{_GAP}begin[｜|]>\s*"
_DEEPSEEK = late(
    rf"(?:{_DEEPSEEK_BEGIN}|\s*)(?:function\s*<[｜|]tool{_GAP}sep[｜|]>\s*)?(?P<name>[A-Za-z_][\w.:-]{{0,127}})\s*"
    rf"(?:<[｜|]tool{_GAP}sep[｜|]>|\n)\s*(?:```(?:json)?\s*)?(?=\{{|\Z)"
)
_DEEPSEEK_CUT = late(rf"{_DEEPSEEK_BEGIN}\Z")
_DEEPSEEK_END = late(rf"(?:\s*```)?(?:\s*<[｜|]tool{_GAP}calls?{_GAP}end[｜|]>)*")


def _read_deepseek(source: Source, at: int, opener: str) -> Found | None:
    begin = at - len(opener) if opener in _CALL else at
    return jsoncalls.sequence(source, begin, _DEEPSEEK, _DEEPSEEK_STOPS, _DEEPSEEK_END, _DEEPSEEK_CUT)


_DEEPSEEK_FORMATS = (
    Format(
        name="deepseek",
        openers=(*_CALLS, *_CALL),
        read=_read_deepseek,
        quiet=(*_CALLS_END, *_CALL_END, "<｜end▁of▁sentence｜>"),
    ),
)

_KIMI_BEGIN, _KIMI_END = "<|tool_call_begin|>", "<|tool_call_end|>"
_KIMI_SECTION = ("<|tool_calls_section_begin|>", "<|tool_call_section_begin|>")
_KIMI_SECTION_END = ("<|tool_calls_section_end|>", "<|tool_call_section_end|>")
_KIMI = late(
    r"\s*<\|tool_call_begin\|>\s*(?P<id>(?:functions\.)?(?P<name>[\w.:-]{1,128}?)(?::\d+)?)"
    r"\s*<\|tool_call_argument_begin\|>\s*"
)
_KIMI_CUT = late(r"\s*<\|tool_call_begin\|>\s*[\w.:-]{0,160}\s*(?:<[^>]*>?\s*)?\Z")
_KIMI_CLOSED = late(r"\s*<\|tool_call_end\|>")


def _read_kimi(source: Source, at: int, opener: str) -> Found | None:
    begin = at - len(opener) if opener == _KIMI_BEGIN else at
    found = jsoncalls.sequence(source, begin, _KIMI, (_KIMI_END, *_KIMI_SECTION_END), _KIMI_CLOSED, _KIMI_CUT)
    return jsoncalls.closed(source, found, _KIMI_SECTION_END) if found is not None else None


_KIMI_FORMATS = (
    Format(
        name="kimi-k2", openers=(*_KIMI_SECTION, _KIMI_BEGIN), read=_read_kimi, quiet=(*_KIMI_SECTION_END, _KIMI_END)
    ),
)

_HARMONY = late(
    r"(?:<\|start\|>assistant)?(?P<before>[^<\n]{0,160})<\|channel\|>\s*(?P<channel>[a-z]+)(?P<after>[^<\n]{0,160})"
    r"(?:<\|constrain\|>\s*[\w-]{0,40}\s*)?<\|message\|>"
)
_TO = late(r"to=([\w.:-]+)")
_HARMONY_ENDS = ("<|call|>", "<|end|>", "<|return|>", "<|start|>", "<|channel|>")
_HARMONY_CLOSES = ("<|call|>", "<|end|>", "<|return|>")
_THOUGHT_END = late(r"<\|(?:end|start|return)\|>|(?:^|(?<=[\n.!?]))<\|channel\|>")
"""The end of a thought: a channel only if no sentence continues around it."""
_START = late(r"<\|start\|>assistant\s*\Z")
_UNFINISHED = late(r"[^\n]{0,400}\Z")


def _read_harmony(source: Source, at: int, opener: str) -> Found | None:
    begin = at if opener.startswith(" ") or opener[:1].isalpha() else at - len(opener)
    head = source.match(_HARMONY, begin)
    if head is None:
        if (named := _TO.search(source.text, begin, begin + 200)) and source.match(_UNFINISHED, begin):
            return Found(end=source.end, cut=unprefixed(named[1]))
        return Found(end=source.end, header=True) if source.match(_START, begin) else None
    if head["channel"] == "analysis":
        end = source.search(_THOUGHT_END, head.end())
        end = end if end >= 0 else source.text.find("<|call|>", head.end())
        end = end if end >= 0 else source.end
        after = end + len(source.starts(end, *_HARMONY_CLOSES) if end < source.end else "")
        return Found(end=after, items=[Say(source.text[head.end() : end], thought=True)], header=True)
    to = _TO.search(head["before"] + " " + head["after"])
    if to is None:
        return Found(end=head.end(), header=True)
    return _harmony_call(source, unprefixed(to[1]), head)


def _harmony_call(source: Source, name: str, head: re.Match[str]) -> Found:
    place = source.skip(head.end())
    if place >= source.end:
        return Found(end=source.end, cut=name)
    return jsoncalls.closed(source, jsoncalls.named(source, name, place, _HARMONY_ENDS), _HARMONY_CLOSES)


_HARMONY_FORMATS = (
    Format(
        name="harmony",
        openers=("<|channel|>", "<|start|>assistant"),
        read=_read_harmony,
        quiet=("<|end|>", "<|return|>", "<|call|>", "<|start|>"),
    ),
    Format(name="harmony", line=r" ?to=[\w.:-]+ ?<\|channel\|>", read=_read_harmony),
)

_FUNCTIONARY_ENDS = ("<|stop|>", "<|from|>", ">>>", "<|eot_id|>")
_EVERYONE = ("all\n", "all\r\n")
_SECOND = late(r"\s*(?:assistant\s*)?(?:<\|recipient\|>\s*)?([\w.-]{1,128})\s*<\|content\|>[ \t\r]*\n?")
_LATER = late(r">>>[A-Za-z_][\w.-]{0,127}[ \t]*\r?\n")
_THIRD = late(r"([A-Za-z_][\w.-]{0,127})[ \t]*\r?\n\s*(?=\{|\Z)")


def _read_second(source: Source, at: int, opener: str) -> Found | None:
    head = source.match(_SECOND, at)
    if head is None:
        return None
    if head[1] == "all":
        return Found(end=head.end(), header=True)
    place = source.skip(head.end())
    if place < source.end and source.text[place] != "{":
        return None
    return _functionary_ended(source, jsoncalls.named(source, head[1], place, _FUNCTIONARY_ENDS))


def _read_third(source: Source, at: int, opener: str) -> Found | None:
    if everyone := source.starts(at, *_EVERYONE):
        return Found(end=at + len(everyone), header=True)
    head = source.match(_THIRD, at)
    if head is None:
        return None
    if head.end() >= source.end:
        return Found(end=source.end, cut=head[1]) if source.tools.known(head[1]) else None
    return _functionary_ended(source, jsoncalls.named(source, head[1], head.end(), _FUNCTIONARY_ENDS))


def _functionary_ended(source: Source, found: Found) -> Found:
    """Include the token that ends it, but not the one that begins the next message."""
    return jsoncalls.closed(source, found, ("<|stop|>", "<|eot_id|>"))


def _read_all(source: Source, at: int, opener: str) -> Found | None:
    """Read the recipient of text at the very beginning, whose `>>>` was in the prompt; only if others follow."""
    if not source.begins or source.search(_LATER, at) < 0:
        return None
    return Found(end=at + len(opener), header=True)


_FUNCTIONARY_FORMATS = (
    Format(name="functionary", openers=("<|from|>assistant", "<|recipient|>"), read=_read_second, quiet=("<|stop|>",)),
    Format(name="functionary", openers=(">>>",), read=_read_third),
    Format(name="functionary", line=r"all\r?\n", read=_read_all),
)

_GEMMA = late(r"\s*(?:call\s*:\s*)?([A-Za-z_][\w.:-]{0,127})\s*(?=\{)")
_GEMMA_TOKEN = late(
    r"""\s*(?:(?P<mark><escape>|<\|"\|>)(?P<text>.*?)(?P=mark)|(?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')"""
    r"""|(?P<sign>[{}\[\],:]))""",
    re.DOTALL,
)
_GEMMA_KEY = late(r"\s*([^\s:{}\[\],<>\"']{1,128})(?=\s*:)")
_GEMMA_BARE = late(r"[^,}\]\n]+(?=[,}\]\n])")
_GEMMA_ENDS = ("<end_function_call>", "<tool_call|>", "<|tool_call|>")
_NUMBER = late(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?\Z", re.ASCII)
_WORDS = {"true": "true", "false": "false", "null": "null", "True": "true", "False": "false", "None": "null"}
_DEPTH = 60


def _gemma_value(text: str, at: int) -> tuple[Any, int] | int:
    """Return the object at `at` and its end; or the place of the damage if it cannot be read or does not end."""
    written: list[str] = []
    opened, before = "", ""
    while len(opened) <= _DEPTH:
        is_value = before == ":" or (opened[-1:] == "[" and before in ("[", ","))
        if token := _GEMMA_TOKEN.match(text, at):
            before = token["sign"] or ""
            written.append(before or token["string"] or jsontext.dumps(token["text"]).decode())
            opened = opened + before if before in ("{", "[") else opened[:-1] if before in ("}", "]") else opened
        elif token := (_GEMMA_BARE if is_value else _GEMMA_KEY).match(text, at):
            written.append(_gemma_plain(token[0].strip()) if is_value else jsontext.dumps(token[1]).decode())
            before = ""
        else:
            break
        at = token.end()
        if not opened:
            read, value = read_whole("".join(written))
            return (cast("Any", value), at) if read and isinstance(value, dict) else at
    return at


def _gemma_plain(word: str) -> str:
    return word if _NUMBER.match(word) else _WORDS.get(word) or jsontext.dumps(word).decode()


def _read_gemma(source: Source, at: int, opener: str) -> Found | None:
    named = source.match(_GEMMA, at)
    if named is None:
        return None
    name, start = named[1], named.end()
    found = _gemma_value(source.text, start)
    if isinstance(found, int):
        place, word = source.first(_GEMMA_ENDS, start)
        name = source.tools.plain(name)
        if place < 0:
            return Found(end=source.end, cut=name)
        raw = source.text[start:place].strip()
        fault = f"the arguments cannot be read (character {found - start} of {len(raw)})"
        call = FoundCall(name=name, arguments=raw, raw=raw, fault=fault)
        return Found(end=place + len(word), items=[call])
    value, end = found
    place = source.skip(end)
    closed = source.starts(place, *_GEMMA_ENDS) if place < source.end else ""
    call = source.call(name, value, named.start(), end)
    return Found(end=place + len(closed) if closed else end, items=[call])


_GEMMA_FORMATS = (
    Format(
        name="gemma",
        openers=("<start_function_call>", "<|tool_call>"),
        read=_read_gemma,
        quiet=("<end_function_call>", "<tool_call|>", "<end_of_turn>", "<turn|>", "<start_function_response>"),
    ),
)

_LLAMA_ENDS = ("<|eom_id|>", "<|eot_id|>", "<|python_end|>", "<|eom|>", "<|eot|>")
_CODE_FENCE = late(r"\A```[\w-]*[ \t]*\r?\n|\r?\n?```\s*\Z")
_METHOD = late(r"([A-Za-z_]\w*)\.call\(")
_RUNNERS = ("python", "code_interpreter", "ipython", "interpreter", "execute_python")


def _read_llama(source: Source, at: int, opener: str) -> Found | None:
    place = source.skip(at)
    if source.text[place : place + 1] in ("{", "["):
        found = jsoncalls.between(_LLAMA_ENDS)(source, at, opener)
        if found is not None and (found.cut is not None or any(call.name != jsoncalls.UNNAMED for call in found.calls)):
            return found
    if source.match(pycalls.CALL, place) or source.match(pycalls.LIST, place):
        found = _llama_python(source, place)
        if found is not None:
            return found
    return code_call(source, place, _LLAMA_ENDS) if opener == "<|python_tag|>" else None


def _llama_python(source: Source, at: int) -> Found | None:
    try:
        found = pycalls.read_list(source, at) if source.text[at] == "[" else pycalls.read_lines(source, at, _LLAMA_ENDS)
    except NotACall:
        return None
    for call in found.calls:
        call.name = source.tools.plain(call.name.removesuffix(".call"))
    found.cut = None if found.cut is None else found.cut.removesuffix(".call")
    known = all(source.tools.known(call.name) for call in found.calls)
    if not known and source.text[at] != "[" and not source.match(_METHOD, at):
        return None  # code that happens to be one call
    return jsoncalls.closed(source, found, _LLAMA_ENDS)


def code_call(source: Source, at: int, closers: tuple[str, ...]) -> Found | None:
    """Return a call of the tool that runs code, up to one of `closers` or the end."""
    place, word = source.first(closers, at)
    end = place if place >= 0 else source.end
    code = _CODE_FENCE.sub("", source.text[at:end].strip())
    if not code:
        return None
    name = next((each for each in _RUNNERS if source.tools.known(each)), "python")
    call = FoundCall(name=name, arguments={source.tools.main(name) or "code": code}, raw=code)
    return Found(end=end + len(word), items=[call], code=True)


_LLAMA_FORMATS = (
    Format(name="llama-3", openers=("<|python_tag|>",), read=_read_llama, quiet=("<|eom_id|>", "<|eot_id|>")),
    Format(
        name="llama-4", openers=("<|python_start|>",), read=_read_llama, quiet=("<|python_end|>", "<|eom|>", "<|eot|>")
    ),
)

FORMATS = (
    *_MISTRAL_FORMATS,
    *_DEEPSEEK_FORMATS,
    *_KIMI_FORMATS,
    *_HARMONY_FORMATS,
    *_FUNCTIONARY_FORMATS,
    *_GEMMA_FORMATS,
    *_LLAMA_FORMATS,
)
