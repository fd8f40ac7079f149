"""The tokenizer: single characters, whole common words, and the fixed parts of calls.

Names and words that are copied fall into the same tokens wherever they stand: no token holds a blank and letters, so
that ` notes` and `"notes` end alike. A merged word counts only where all its letters come together: parts of words
are no tokens, and llama.cpp then falls back to the characters.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter

from .speech import common_words
from .words import LATIN

CONTROL = ("<|pad|>", "<|user|>", "<|bot|>", "<|tool|>", "<|end|>")
_OPEN = '{{"name": "{}", "arguments": {{"{}":"'
FIXED = (
    "<tool_call>",
    "</tool_call>",
    *(_OPEN.format(name, "path") for name in ("ls", "read", "write")),
    _OPEN.format("shell", "command"),
    _OPEN.format("shell", "command") + "echo '",
    _OPEN.format("shell", "command") + "find ",
    _OPEN.format("shell", "command") + "mkdir -p ",
    '","content":"',
    '\\n"}}',
    "' >> ",
    ' -maxdepth 1 -type f | wc -l"}}',
    '"}}',
)


class Tokenizer:
    """Text to numbers, as llama.cpp does it with the exported vocabulary.

    Attributes:
        tokens: texts of the tokens; blanks and letters beyond ASCII in the stand-ins of byte-level tokenizers.
        merges: pairs that are joined, best first.
    """

    def __init__(self) -> None:
        words = common_words()
        merges = _learned(words)
        ranks = {pair: rank for rank, pair in enumerate(merges)}
        letters = ["\n", "\t", *map(chr, range(32, 127))]
        self.tokens = [*CONTROL, *FIXED, *(shown(letter) for letter in letters), *map(shown, LATIN), *words]
        self.merges = [f"{shown(letter)[0]} {shown(letter)[1]}" for letter in LATIN]
        self.merges += [f"{left} {right}" for left, right in merges]
        self._ranks = ranks
        self._numbers = {token: number for number, token in enumerate(self.tokens)}
        special = sorted((*CONTROL, *FIXED), key=len, reverse=True)
        self._special = re.compile("(" + "|".join(map(re.escape, special)) + ")")
        self._kept: dict[str, list[int]] = {}

    def encode(self, text: str) -> list[int]:
        """The tokens of a text. Characters that are no tokens are left out, as llama.cpp does."""
        numbers: list[int] = []
        for piece in self._special.split(text):
            if piece in CONTROL or piece in FIXED:
                numbers.append(self._numbers[piece])
                continue
            for run in re.findall(r"[A-Za-z]+|[^A-Za-z]", piece):
                numbers += self._run(run)
        return numbers

    def _run(self, run: str) -> list[int]:
        if run not in self._kept:
            found: list[int] = []
            for part in _join(run, self._ranks):
                whole = self._numbers.get(shown(part))
                if whole is not None:
                    found.append(whole)
                else:
                    found += [self._numbers[shown(letter)] for letter in part if shown(letter) in self._numbers]
            self._kept[run] = found
        return self._kept[run]


def _stand_ins() -> dict[int, str]:
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in visible]
    return {byte: chr(byte) for byte in visible} | {byte: chr(256 + at) for at, byte in enumerate(hidden)}


_LETTERS = _stand_ins()


def shown(text: str) -> str:
    """Bytes as byte-level tokenizers write them: those that cannot be seen have stand-ins."""
    return "".join(_LETTERS[byte] for byte in text.encode())


def _learned(words: list[str]) -> list[tuple[str, str]]:
    """Byte-pair merges, the most frequent pair first, until each of the words is one piece."""
    spelled = [list(word) for word in words]
    merges: list[tuple[str, str]] = []
    while True:
        pairs = Counter(pair for parts in spelled for pair in itertools.pairwise(parts))
        if not pairs:
            return merges
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append(best)
        for parts in spelled:
            _merge(parts, best)


def _merge(parts: list[str], pair: tuple[str, str]) -> None:
    at = 0
    while at < len(parts) - 1:
        if parts[at] == pair[0] and parts[at + 1] == pair[1]:
            parts[at : at + 2] = ["".join(pair)]
        at += 1


def _join(run: str, ranks: dict[tuple[str, str], int]) -> list[str]:
    parts = list(run)
    while True:
        found = [pair for pair in itertools.pairwise(parts) if pair in ranks]
        if not found:
            return parts
        _merge(parts, min(found, key=ranks.__getitem__))
