"""The words of a pattern, as they are compared with those of a command."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple


class Pat(NamedTuple):
    """A word of a pattern."""

    text: str
    glob: re.Pattern[str] | None = None


class Pattern(NamedTuple):
    """A pattern; `rest`: any further arguments."""

    words: tuple[Pat, ...]
    rest: bool


@lru_cache(maxsize=512)
def compiled(pattern: str) -> Pattern | None:
    """The words of a pattern, or None where a quote is left open."""
    words: list[Pat] = []
    for token in re.finditer(r"""(?:[^\s'"\\]|\\.|'[^']*'|"(?:[^"\\]|\\.)*"|(?P<bad>['"\\]))+""", pattern, re.DOTALL):
        if token["bad"]:
            return None
        text, form, globs = "", "", False
        for piece in re.findall(r"""'[^']*'|"(?:[^"\\]|\\.)*"|\\.|.""", token[0], re.DOTALL):
            if piece == "*":
                text, form, globs = text + "*", form + ".*", True
                continue
            value = piece
            if piece[0] == "'" and len(piece) > 1:
                value = piece[1:-1]
            elif piece[0] == '"' and len(piece) > 1:
                value = re.sub(r'\\([$`"\\])', r"\1", piece[1:-1])
            elif piece[0] == "\\":
                value = piece[1:]
            text, form = text + value, form + re.escape(value)
        words.append(Pat(text, re.compile(form, re.DOTALL) if globs else None))
    rest = bool(words) and words[-1].text == "*" and words[-1].glob is not None
    return Pattern(tuple(words[:-1] if rest else words), rest)


def generous(pattern: str) -> Pattern:
    """The same for a deny rule, which means something even with a quote left open."""
    return compiled(pattern) or Pattern(tuple(Pat(word) for word in pattern.split()), rest=True)


def understood(pattern: str) -> bool:
    """Whether every quote of a pattern is closed."""
    return compiled(pattern) is not None
