"""Thoughts: the tags around them, and where a thought ends.

A thought may itself contain tags of thoughts, as a nested thought or as a mention. An opening tag is paired with the
tag that closes it, counting nested ones; if that leaves it open, only nested tags at the beginning of a line count.
"""

from __future__ import annotations

import re
from bisect import bisect_left

from lmagent.core.patterns import late

_LOWER = ("think", "thinking", "thought", "thoughts", "reasoning", "reflection", "scratchpad")
_WORDS = (*_LOWER, *(word.capitalize() for word in _LOWER), "THINK", "THINKING", "THOUGHT", "REASONING")
_PAIRS: tuple[tuple[str, str, str], ...] = (
    *((f"<{word}>", f"</{word}>", "think") for word in _WORDS),
    ("<antThinking>", "</antThinking>", "claude"),
    ("<antml:thinking>", "</antml:thinking>", "claude"),
    ("[THINK]", "[/THINK]", "mistral"),
    ("<seed:think>", "</seed:think>", "seed"),
    ("<mm:think>", "</mm:think>", "minimax"),
    ("<|inner_prefix|>", "<|inner_suffix|>", "apertus"),
    ("<|START_THINKING|>", "<|END_THINKING|>", "cohere"),
    ("<|begin_of_thought|>", "<|end_of_thought|>", "sky"),
    ("<|thinking_start|>", "<|thinking_end|>", "other"),
    ("◁think▷", "◁/think▷", "kimi"),
    ("<unused94>", "<unused95>", "medgemma"),
    ("<|channel>thought", "<channel|>", "gemma"),
)
OPENS = {opening: family for opening, _, family in _PAIRS}
CLOSES = {closing: family for _, closing, family in _PAIRS}
TAGS = (*OPENS, *CLOSES)
_FAMILY = {
    family: late("|".join(re.escape(tag) for tag in TAGS if (OPENS.get(tag) or CLOSES.get(tag)) == family))
    for family in OPENS.values()
}
TAG = late("|".join(re.escape(tag) for tag in sorted(TAGS, key=len, reverse=True)))
MARKS = {'"': '"', "'": "'", "`": "`", "“": "”", "‘": "’", "«": "»"}
_FENCE = late(r"(?m)^ {0,3}(?:`{3,}|~{3,})[^`\n]*$")
_NEAR = 400


def quoted(text: str, start: int, end: int) -> bool:
    """Return whether a tag is a quotation: between quotation marks, or inside inline code."""
    before = text[start - 1] if start else ""
    if before in MARKS and before and text[end : end + 1] == MARKS[before]:
        return True
    line = text[max(text.rfind("\n", max(0, start - _NEAR), start) + 1, start - _NEAR, 0) : start]
    if line.replace("```", "").count("`") % 2 == 0:
        return False
    stop = text.find("\n", end, end + _NEAR)
    return "`" in text[end : stop if stop >= 0 else end + _NEAR]


def is_open_quotation(thought: str, rest: str) -> bool:
    """Return whether the tag after a growing thought may be a quotation in it."""
    line = thought[thought.rfind("\n") + 1 :].replace("```", "")
    marked = line[-1:] in MARKS and line[-1:] != "" and rest[:1] == MARKS[line[-1:]]
    return marked or line.count("`") % 2 == 1 or len(_fences(thought, 0)) % 2 == 1


def unbalanced(text: str) -> bool:
    """Return whether a text opens more thoughts than it closes, without closing tags in a fence that is open there."""
    if any(text.count(opening) > text.count(closing) for opening, closing, _ in _PAIRS if opening in text):
        return True
    fences = _fences(text, 0)
    closing = (found.start() for found in TAG.finditer(text) if found[0] in CLOSES)
    return any(bisect_left(fences, place) % 2 for place in closing)


def ends_template_thought(text: str, at: int) -> tuple[int, int]:
    """Return the first tag from `at` if it closes a thought at a line's beginning; else the end of the text, twice."""
    fences = _fences(text, 0)
    for tag in TAG.finditer(text, at):
        if bisect_left(fences, tag.start()) % 2 == 0 and not quoted(text, *tag.span()):
            line = text[text.rfind("\n", max(0, tag.start() - _NEAR), tag.start()) + 1 : tag.start()]
            return (len(text), len(text)) if tag[0] in OPENS or line.strip() else tag.span()
    return len(text), len(text)


def _fences(text: str, at: int) -> list[int]:
    return [found.start() for found in _FENCE.finditer(text, at)]


class Pairing:
    def __init__(self, text: str) -> None:
        self._text = text
        self._known: dict[str, dict[int, int]] = {}

    def closing(self, at: int, opening: str) -> tuple[int, int]:
        """Return the end of the thought that a tag opens, and the place after its closing tag; else -1, -1."""
        family = OPENS[opening]
        if family not in self._known:
            self._known[family] = self._pairs(at, family)
        place = self._known[family].get(at, -1)
        found = _FAMILY[family].match(self._text, place) if place >= 0 else None
        return (place, found.end()) if found else (-1, -1)

    def _pairs(self, at: int, family: str) -> dict[int, int]:
        tags = self._unfenced(at, list(self._tags(at, family)))
        strict = [tag for tag in tags if not tag[1] or self._begins_line(tag[0])]
        return {**_matched(strict), **_matched(tags)}

    def _unfenced(self, at: int, tags: list[tuple[int, bool]]) -> list[tuple[int, bool]]:
        """Return the tags without those in a fence that closes before the last closing tag: the thought quotes them."""
        fences = _fences(self._text, at)
        last = max((place for place, opens in tags if not opens), default=-1)
        kept: list[tuple[int, bool]] = []
        for place, opens in tags:
            number = bisect_left(fences, place)
            if number % 2 == 0 or number >= len(fences) or fences[number] > last:
                kept.append((place, opens))
        return kept

    def _begins_line(self, at: int) -> bool:
        near = max(0, at - 80)
        begin = self._text.rfind("\n", near, at)
        return (begin >= 0 or near == 0) and not self._text[max(begin, near) : at].strip()

    def _tags(self, at: int, family: str) -> list[tuple[int, bool]]:
        return [
            (found.start(), found[0] in OPENS)
            for found in _FAMILY[family].finditer(self._text, at)
            if found.start() == at or not quoted(self._text, found.start(), found.end())
        ]


def _matched(tags: list[tuple[int, bool]]) -> dict[int, int]:
    pairs: dict[int, int] = {}
    opened: list[int] = []
    for place, opens in tags:
        if opens:
            opened.append(place)
        elif opened:
            pairs[opened.pop()] = place
    return pairs
