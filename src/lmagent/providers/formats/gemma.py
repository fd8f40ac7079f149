"""FunctionGemma: `<start_function_call>call:name{key:<escape>text<escape>,n:1}<end_function_call>`; Gemma 4:
`<|tool_call>call:name{key:<|"|>text<|"|>}<tool_call|>`. Gemma 3's `tool_code` fences are in `fenced`.

Strings stand between two marks and are not escaped; keys are bare; lists and objects nest. Source: the models' chat
templates.
"""

import re
from typing import Any

from lmagent.core.loosejson import Broken, Cut, Loose
from lmagent.providers.formats.base import Format, Found, FoundCall, Source

_MARKS = ("<escape>", '<|"|>')
_NAMED = re.compile(r"\s*(?:call\s*:\s*)?([A-Za-z_][\w.:-]{0,127})\s*(?=\{)")
_KEY = re.compile(r"[^\s:{}\[\],<>\"']{1,128}")
_BARE = re.compile(r"[^,}\]\n]+")
_ENDS = ("<end_function_call>", "<tool_call|>", "<|tool_call|>")
_DEPTH = 60


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._json = Loose(text)

    def value(self, at: int, depth: int = 0) -> tuple[Any, int]:
        if at >= len(self._text):
            raise Cut(at)
        if depth > _DEPTH:
            raise Broken("nested too deeply", at)
        mark = self._text[at]
        if mark == "{":
            return self._many(at, "}", depth)
        if mark == "[":
            return self._many(at, "]", depth)
        if word := next((word for word in _MARKS if self._text.startswith(word, at)), ""):
            return self._marked(at + len(word), word)
        if mark in "\"'":
            return self._json.string(at)
        found = _BARE.match(self._text, at)
        if found is None:
            raise Broken("a value is missing", at)
        if found.end() >= len(self._text):
            raise Cut(at)
        return _plain(found[0].strip()), found.end()

    def _marked(self, at: int, word: str) -> tuple[str, int]:
        end = self._text.find(word, at)
        if end < 0:
            raise Cut(at)
        return self._text[at:end], end + len(word)

    def _many(self, at: int, closing: str, depth: int) -> tuple[Any, int]:
        members: dict[str, Any] = {}
        items: list[Any] = []
        at = self._json.space(at + 1)
        while True:
            mark = self._text[at : at + 1]
            if not mark:
                raise Cut(at)
            if mark == closing:
                return (members if closing == "}" else items), at + 1
            if mark == ",":
                at = self._json.space(at + 1)
                continue
            if closing == "}":
                key, at = self._key(at)
                members[key], at = self.value(at, depth + 1)
            else:
                item, at = self.value(at, depth + 1)
                items.append(item)
            at = self._json.space(at)
            if self._text[at : at + 1] not in (",", closing, ""):
                raise Broken("a comma or a closing bracket is missing", at)

    def _key(self, at: int) -> tuple[str, int]:
        word = next((word for word in _MARKS if self._text.startswith(word, at)), "")
        if word:
            key, at = self._marked(at + len(word), word)
        elif self._text[at] in "\"'":
            key, at = self._json.string(at, "key")
        elif found := _KEY.match(self._text, at):
            key, at = found[0], found.end()
        else:
            raise Broken("a key is missing", at)
        at = self._json.space(at)
        if at >= len(self._text):
            raise Cut(at)
        if self._text[at] != ":":
            raise Broken("a colon is missing", at)
        return key, self._json.space(at + 1)


def _plain(word: str) -> Any:
    known = {"true": True, "false": False, "null": None, "True": True, "False": False, "None": None}
    if word in known:
        return known[word]
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return word


def _read(source: Source, at: int, opener: str) -> Found | None:
    named = source.match(_NAMED, at)
    if named is None:
        return None
    name, start = named[1], named.end()
    try:
        value, end = _Reader(source.text).value(start)
    except (Cut, Broken) as error:
        source.needs()
        place, word = source.first(_ENDS, start)
        if place < 0:
            return Found(end=source.end, cut=source.tools.plain(name))
        raw = source.text[start:place].strip()
        why = f"{getattr(error, 'why', 'it ends in the middle')} (character {error.at - start} of {len(raw)})"
        name = source.tools.plain(name)
        call = FoundCall(name=name, arguments=raw, raw=raw, format="gemma", fault=why, spills=True)
        return Found(end=place + len(word), items=[call])
    found = Found(end=end, items=[source.call(name, value, named.start(), end, "gemma")])
    place = source.skip(end)
    found.end = place + len(source.starts(place, *_ENDS)) if source.starts(place, *_ENDS) else end
    return found


FORMATS = (
    Format(
        name="gemma",
        openers=("<start_function_call>", "<|tool_call>"),
        read=_read,
        quiet=("<end_function_call>", "<tool_call|>", "<end_of_turn>", "<turn|>", "<start_function_response>"),
    ),
)
