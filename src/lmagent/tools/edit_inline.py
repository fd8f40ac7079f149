"""Find a search that starts or ends in the middle of a line, where its runs of blanks or its typography differ.

Only at the edges of words: `x = 1` is not found in `x  = 10`, nor `a` in `a.b`. Inside, lines are compared as strictly
as whole ones, and no indentation is bridged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from lmagent.tools.edit_fold import loose_map
from lmagent.tools.edit_indent import indent_of
from lmagent.tools.edit_match import BLANKS, TRAIL, Target, TooMany, runs_of
from lmagent.tools.edit_runs import agree

_ROWS = 5_000
_CHARACTERS = 5_000_000  # of a line, times the places in it: looking at a place may take as long as the line is
_FREE = frozenset(" \t\n()[]{},;")
_QUOTES = frozenset("\"'`“”‘’«»")
_STOPS = frozenset(".,:;!?…")

Spot = tuple[int, int]
"""Row and column."""


class Stretch(Struct, frozen=True):
    """Where a search was found: from `start` up to `stop`, with the bridges needed, and its non-blank lines paired."""

    bits: int
    start: Spot
    stop: Spot
    pairs: list[tuple[int, int]]


def stretches(target: Target, lines: Sequence[str], *, closed: bool) -> list[Stretch]:
    """All places of a search; `closed` says that its last line goes on to the end of a line.

    Raises:
        TooMany: it fits so often that the places are not even told apart.
    """
    if not lines or not lines[0].strip() or not lines[-1].strip():
        return []
    keys = target.keys_of(lines)
    starts = _candidates(target.keys, keys)
    if len(starts) * len(keys) > _ROWS:
        raise TooMany([target.rows[start] for start in starts[:2]])
    return [found for start in starts for found in _at(target, lines, start, closed=closed)]


def _candidates(hay: Sequence[str], keys: Sequence[str]) -> list[int]:
    first, last = keys[0], keys[-1]
    if len(keys) == 1:
        return [at for at, key in enumerate(hay) if first in key]
    inner = runs_of(hay, keys[1:-1]) if len(keys) > 2 else range(1, len(hay))
    size = len(keys) - 2
    return [
        at - 1
        for at in inner
        if at and at + size < len(hay) and hay[at - 1].endswith(first) and hay[at + size].startswith(last)
    ]


def _at(target: Target, lines: Sequence[str], start: int, *, closed: bool) -> Iterator[Stretch]:
    first = target.rows[start]
    if len(lines) == 1:
        line = target.document.lines[first]
        sought = lines[0].rstrip() if closed else lines[0]
        for begin, end in _spans(target, first, sought):
            bits = agree(line, begin, end, sought, lambda: target.states[first])
            if bits is not None and (not closed or not line[end:].strip()):
                stop = len(line) if closed else end
                yield Stretch(bits | (TRAIL if stop != end else 0), (first, begin), (first, stop), [(0, first)])
        return
    bits = 0
    pairs = [(0, first)]
    rows = [at for at, line in enumerate(lines) if line.strip()]
    for count, at in enumerate(rows[1:], 1):
        row = target.rows[start + count]
        if at - pairs[-1][0] != row - pairs[-1][1]:
            bits |= BLANKS
        pairs.append((at, row))
    for at, row in pairs[1 : None if closed else -1]:
        compared = target.pair(row, lines[at])
        if compared is None or compared[1] != compared[2]:
            return
        bits |= compared[0]
    head = _head(target, first, lines[0])
    tail = (0, len(target.document.lines[pairs[-1][1]])) if closed else _tail(target, pairs[-1][1], lines[-1])
    if head is not None and tail is not None:
        yield Stretch(bits | head[0] | tail[0], (first, head[1]), (pairs[-1][1], tail[1]), pairs)


def _head(target: Target, row: int, want: str) -> tuple[int, int] | None:
    """Bits and column at which the search's first line begins, so that it goes on to the line's end."""
    line = target.document.lines[row]
    text = line.rstrip()
    sought = want.rstrip()
    for begin, end in _spans(target, row, sought):
        bits = agree(line, begin, end, sought, lambda: target.states[row])
        if end == len(text) and bits is not None:
            return bits | (TRAIL if line[end:] != want[len(sought) :] else 0), begin
    return None


def _tail(target: Target, row: int, want: str) -> tuple[int, int] | None:
    """Bits and column at which the search's last line ends, where it starts with the line."""
    line = target.document.lines[row]
    indent = indent_of(line)
    if indent_of(want) != indent:
        return None
    sought = want[len(indent) :]
    for begin, end in _spans(target, row, sought):
        bits = agree(line, begin, end, sought, lambda: target.states[row])
        if begin == len(indent) and bits is not None:
            return bits, end
    return None


def _spans(target: Target, row: int, want: str) -> Iterator[Spot]:
    """Columns between which the line may read `want`, at the edges of words."""
    line = target.document.lines[row]
    text, origin = loose_map(line, dashes=target.dashes)
    sought, _ = loose_map(want, dashes=target.dashes)
    left = max(_CHARACTERS // (len(line) + 1), 8)
    at = text.find(sought)
    while at >= 0:
        begin, end = origin[at], origin[at + len(sought)]
        before, behind = line[max(begin - 2, 0) : max(begin, 0)][::-1], line[end : end + 2]
        if begin >= 0 and end >= 0 and _edge(line[begin], before) and _edge(line[end - 1], behind):
            left -= 1
            if left < 0:
                raise TooMany([row])
            yield begin, end
        at = text.find(sought, at + 1)


def _edge(inner: str, outer: str) -> bool:
    """Whether a match may end with `inner` where the line goes on with `outer`, going outwards."""
    if not outer or inner in _FREE or outer[0] in _FREE or outer[0] == "\u00a0":
        return True
    if outer[0] in _QUOTES or (inner in _QUOTES and not outer[0].isalnum() and outer[0] != "_"):
        return True
    return outer[0] in _STOPS and (len(outer) == 1 or outer[1] in " \t\n\u00a0" or outer[1] in _QUOTES)
