"""FunctionGemma: `<start_function_call>call:name{key:<escape>text<escape>,n:1}<end_function_call>`; Gemma 4:
`<|tool_call>call:name{key:<|"|>text<|"|>}<tool_call|>`. Gemma 3's `tool_code` fences are in `fences`.

Strings are between two marks and are not escaped; keys are bare; lists and objects nest. Source: the models' chat
templates.
"""

import re
from typing import Any, cast

from lmagent.core.loosejson import read_whole
from lmagent.providers import jsontext
from lmagent.providers.formats.base import Format, Found, FoundCall, Source

_NAMED = re.compile(r"\s*(?:call\s*:\s*)?([A-Za-z_][\w.:-]{0,127})\s*(?=\{)")
_TOKEN = re.compile(
    r"""\s*(?:(?P<mark><escape>|<\|"\|>)(?P<text>.*?)(?P=mark)|(?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')"""
    r"""|(?P<sign>[{}\[\],:]))""",
    re.DOTALL,
)
_KEY = re.compile(r"\s*([^\s:{}\[\],<>\"']{1,128})(?=\s*:)")
_BARE = re.compile(r"[^,}\]\n]+(?=[,}\]\n])")
_ENDS = ("<end_function_call>", "<tool_call|>", "<|tool_call|>")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?\Z", re.ASCII)
_WORDS = {"true": "true", "false": "false", "null": "null", "True": "true", "False": "false", "None": "null"}
_DEPTH = 60


def _value(text: str, at: int) -> tuple[Any, int] | int:
    """Return the object at `at` and its end; or the place of the damage if it cannot be read or does not end."""
    written: list[str] = []
    opened, before = "", ""
    while len(opened) <= _DEPTH:
        is_value = before == ":" or (opened[-1:] == "[" and before in ("[", ","))
        if token := _TOKEN.match(text, at):
            before = token["sign"] or ""
            written.append(before or token["string"] or jsontext.dumps(token["text"]).decode())
            opened = opened + before if before in ("{", "[") else opened[:-1] if before in ("}", "]") else opened
        elif token := (_BARE if is_value else _KEY).match(text, at):
            written.append(_plain(token[0].strip()) if is_value else jsontext.dumps(token[1]).decode())
            before = ""
        else:
            break
        at = token.end()
        if not opened:
            read, value = read_whole("".join(written))
            return (cast("Any", value), at) if read and isinstance(value, dict) else at
    return at


def _plain(word: str) -> str:
    """Return a value without quotation marks as JSON: a number, a word such as `true`, or a string."""
    return word if _NUMBER.match(word) else _WORDS.get(word) or jsontext.dumps(word).decode()


def _read(source: Source, at: int, opener: str) -> Found | None:
    named = source.match(_NAMED, at)
    if named is None:
        return None
    name, start = named[1], named.end()
    found = _value(source.text, start)
    if isinstance(found, int):
        source.needs()
        place, word = source.first(_ENDS, start)
        name = source.tools.plain(name)
        if place < 0:
            return Found(end=source.end, cut=name)
        raw = source.text[start:place].strip()
        fault = f"the arguments cannot be read (character {found - start} of {len(raw)})"
        call = FoundCall(name=name, arguments=raw, raw=raw, format="gemma", fault=fault, spills=True)
        return Found(end=place + len(word), items=[call])
    value, end = found
    place = source.skip(end)
    closed = source.starts(place, *_ENDS) if place < source.end else ""
    call = source.call(name, value, named.start(), end, "gemma")
    return Found(end=place + len(closed) if closed else end, items=[call])


FORMATS = (
    Format(
        name="gemma",
        openers=("<start_function_call>", "<|tool_call>"),
        read=_read,
        quiet=("<end_function_call>", "<tool_call|>", "<end_of_turn>", "<turn|>", "<start_function_response>"),
    ),
)
