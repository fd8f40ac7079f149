"""Markup: one pattern for markup inside a line, one for markup at a line's beginning."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from lmagent.core.patterns import late
from lmagent.providers.formats import bare, elements, react, tagged, tokens
from lmagent.providers.formats.base import Format, Found, Source
from lmagent.providers.formats.place import MarkupPlace
from lmagent.providers.formats.thoughts import CLOSES, TAGS

FORMATS: tuple[Format, ...] = (*tagged.FORMATS, *elements.FORMATS, *tokens.FORMATS, *react.FORMATS, *bare.FORMATS)
"""All formats, in the order in which they are tried if several have the same opener."""

RESULTS = {
    "<tool_response>": "</tool_response>",
    "<tool_result>": "</tool_result>",
    "<tool_output>": "</tool_output>",
    "<function_results>": "</function_results>",
    "<function_response>": "</function_response>",
    "<|tool_response>": "<tool_response|>",
    "<start_function_response>": "<end_function_response>",
    "<|START_TOOL_RESULT|>": "<|END_TOOL_RESULT|>",
    "<｜tool▁outputs▁begin｜>": "<｜tool▁outputs▁end｜>",
    "[TOOL_RESULTS]": "[/TOOL_RESULTS]",
}
"""The markup of results from a server. In a model's own reply, after a call, it is invented."""

_ENDS = (
    *("<|im_end|>", "<|endoftext|>", "<|end_of_turn|>", "<|eos|>", "</s>", "<eos>", "<end_of_turn>", "<turn|>"),
    *("<|eom_id|>", "<|eot_id|>", "<|eot|>", "<|end_of_text|>", "<|start_header_id|>assistant<|end_header_id|>"),
    *(
        "<|CHATBOT_TOKEN|>",
        "<|END_OF_TURN_TOKEN|>",
        "<|start_of_role|>assistant<|end_of_role|>",
        "<|im_start|>assistant",
    ),
)
QUIET = frozenset((*_ENDS, *(word for format in FORMATS for word in format.quiet)))
"""Markup without a meaning of its own."""

BY_OPENER: dict[str, list[Format]] = {}
for _format in FORMATS:
    for _opener in _format.openers:
        BY_OPENER.setdefault(_opener, []).append(_format)
LINES = tuple(format for format in FORMATS if format.line)


def _trie(words: Iterable[str]) -> str:
    """Return a pattern that matches the longest of the words at a place, without trying each."""
    tree: dict[str, Any] = {}
    for word in words:
        node = tree
        for letter in word:
            node = node.setdefault(letter, {})
        node[""] = {}
    return _branch(tree)


def _branch(node: dict[str, Any]) -> str:
    text = ""
    while len(node) == 1 and "" not in node:
        letter, node = next(iter(node.items()))
        text += re.escape(letter)
    parts = [re.escape(letter) + _branch(below) for letter, below in sorted(node.items()) if letter]
    if not parts:
        return text
    return f"{text}(?:{'|'.join(parts)}){'?' if '' in node else ''}"


_LITERALS = (*BY_OPENER, *TAGS, *QUIET, *RESULTS)
LONGEST = max(map(len, _LITERALS))
INSIDE = late(f"`+|{_trie(_LITERALS)}")
"""All markup that needs a look, inside a line."""

CLOSING = late("|".join(map(re.escape, sorted(CLOSES, key=len, reverse=True))))
_QUOTED = (
    r"(?P<code>(?: {4}| {0,3}\t)[ \t]*\S[^\n]*)|(?P<quote> {0,3}>(?!>>[A-Za-z])[^\n]*)"
    r"|(?P<item> {0,3}(?:[-*+•|]|\d{1,3}[.)])[ \t]+[^\n]*)|(?P<fence> {0,3}(?:`{3,}|~{3,}))"
)
_CALLS = f"| {{0,3}}(?:{'|'.join(f'(?P<f{number}>{format.line})' for number, format in enumerate(LINES))})"


def _patterns(line: str, words: Iterable[str]) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return patterns of text that needs a look: at a line's beginning, and anywhere (group `mark`: inside a line)."""
    return late(line), late(f"(?m)^(?:{line})|(?P<mark>`+|{_trie(words)})")


CALLS_AND_THOUGHTS = _patterns(_QUOTED + _CALLS, _LITERALS)
THOUGHTS = _patterns(_QUOTED, TAGS)
HERE = CALLS_AND_THOUGHTS[0]
OPEN_LINE = late(
    r"[ \t]*(?:\Z|[-+•|>~{]|\[(?!THINK\])|`{1,2}\Z|`{3}|\*{1,2}(?:[\sAT]|\Z)|\d{1,3}(?:[.)]|\Z)"
    r"|(?:Action|Thought|functools|to=)|[A-Za-z_][\w.-]*(?:[\[({]|\s*\Z))|(?: {4}| {0,3}\t)"
)
"""The beginning of a line that may become more than text; it waits until the line is complete."""

_BEGINNINGS = frozenset(word[:end] for word in _LITERALS for end in range(1, len(word)))
_BEGINNING = late("|".join(re.escape(letter) for letter in sorted({word[0] for word in _LITERALS})))


_MARKED = late(r"(?m)[<>\[◁`{(:~]|^[ \t]*all\r?$|\n[ \t]*\Z")


def may_hold_markup(text: str) -> bool:
    """Return whether a text has any sign of the formats. Most have none, and need none of the large patterns."""
    return _MARKED.search(text) is not None


def unfinished(text: str) -> int:
    for found in _BEGINNING.finditer(text, max(0, len(text) - LONGEST + 1)):
        if text[found.start() :] in _BEGINNINGS:
            return len(text) - found.start()
    return 0


_LEFT = late(
    r"\s*</(?:tool_call|tool_calls|toolcall|function_call|function_calls|functioncall|function|tool|tools|tool_use|invoke"
    r"|parameters|TOOLCALL|seed:tool_call|minimax:tool_call)>"
)


def after_calls(source: Source, at: int) -> int:
    while True:
        source.skip(at)
        found = _LEFT.match(source.text, at)
        if found is None:
            return at
        at = found.end()


_ROW = 16


def after_row(source: Source, before: str, at: int) -> int:
    """Return the place after calls and tokens in one row within a sentence, which continues only after them."""
    if not before.strip() or MarkupPlace.ended(before):
        return at
    for _ in range(_ROW):
        place = at
        while source.text[place : place + 1] in (" ", "\t"):
            place += 1
        opened = INSIDE.match(source.text, place)
        if opened is None or opened[0][0] == "`":
            break
        inner = native(source, opened[0], opened.end()) if opened[0] in BY_OPENER else None
        at = inner.end if inner is not None else opened.end()
    return at


def quiet(text: str, at: int) -> str:
    """Return the markup at `at` if it has no meaning of its own, else an empty text."""
    found = INSIDE.match(text, at)
    return found[0] if found and found[0] in QUIET else ""


def native(source: Source, word: str, end: int) -> Found | None:
    for format in BY_OPENER[word]:
        if found := format.find(source, end, word):
            return found
    return None
