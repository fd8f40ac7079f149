"""Where string literals lie, as far as that can be told without knowing the language; in doubt, a string.

Blanks inside a string are never bridged. So a wrong "inside" costs a refusal, a wrong "outside" could cost a file.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

ALL = "all"
"""State of a line that lies inside a string as a whole."""

_TOKEN = re.compile(r"\\.|\"\"\"|'''|`{3,}|[\"'`]")
_LASTING = ('"""', "'''", "`")
_PREFIX = re.compile(r"(?:^|[^\w])[rbfuRBFU]{1,2}$")

Spans = tuple[tuple[int, int], ...]


@lru_cache(maxsize=16)
def scan(line: str, state: str) -> tuple[Spans, str]:
    """The spans of `line` that are inside strings, and the quote still open at its end ('' if none).

    Args:
        line: without its line end.
        state: the quote that is open where the line starts, or ALL.
    """
    if state == ALL:
        return ((0, len(line)),), ""
    spans: list[tuple[int, int]] = []
    quote, start = state, 0
    for token in _TOKEN.finditer(line):
        mark = token[0]
        if quote:
            if mark == quote:
                spans.append((start, token.end()))
                quote = ""
        elif mark[0] != "\\" and not mark.startswith("```") and not _apostrophe(line, token.start(), mark):
            quote, start = mark, token.start()
    if quote:
        spans.append((start, len(line)))
    return tuple(spans), quote


def line_states(lines: Sequence[str]) -> list[str]:
    """For each line the state that `scan` needs: quotes that last over line ends, from the start of the file."""
    states: list[str] = []
    halves: list[int] = []
    state = ""
    for row, line in enumerate(lines):
        states.append(state)
        if not state and '"' not in line and "'" not in line and "`" not in line:
            continue
        _, left = scan(line, state)
        state = left if left in _LASTING else ""
        if left == '"':
            halves.append(row)
    # A lone double quote may open a string that another lone one closes lines below (shell, SQL, Rust, YAML).
    for opening, closing in zip(halves[::2], halves[1::2], strict=False):
        states[opening + 1 : closing + 1] = [ALL] * (closing - opening)
    return states


def unclosed(text: str) -> bool:
    """Whether a line of `text` ends inside a string that cannot go on in the next line."""
    return any(scan(line, "")[1] in ('"', "'") for line in text.split("\n"))


def _apostrophe(line: str, position: int, mark: str) -> bool:
    if mark != "'" or position == 0 or position + 1 >= len(line):
        return False
    between = line[position - 1].isalnum() and line[position + 1].isalnum()
    return between and not _PREFIX.search(line[:position][-4:])
