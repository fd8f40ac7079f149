"""Find whole lines of a file that a search means, and say by which bridges.

First all places are found that any bridge could reach (equal loose keys, by Knuth, Morris and Pratt, so in linear
time); then each is verified strictly and gets the bits of the bridges that it needs. A bit counts more than all below
it together: the place with the lowest sum is the least bridged one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property

from msgspec import Struct

from lmagent.tools.edit_fold import fold, loose_keys
from lmagent.tools.edit_indent import Indent, relate
from lmagent.tools.edit_runs import agree
from lmagent.tools.edit_strings import line_states
from lmagent.tools.edit_text import Document, to_lf

TRAIL, RUNS, BLANKS, TYPO = 1, 8, 16, 32
"""White space at line ends, runs of blanks, blank lines, typography; SHIFT, TABS and FIRST are in `edit_indent`."""

_PAIRS = 60_000
"""Pairs of lines that are verified; a search that fits more of a file than that is ambiguous."""

_PLACEMENTS = 200


class TooMany(Exception):
    """More places than can be told apart; carries the rows of the first ones."""

    def __init__(self, rows: Sequence[int]) -> None:
        super().__init__(rows)
        self.rows = rows


class Place(Struct, frozen=True):
    """Where the chunks of a search were found.

    Attributes:
        bits: the bridges needed.
        pairs: for each chunk, (row in the chunk, row in the file) of each line that is not blank.
        indent: how new lines are indented.
    """

    bits: int
    pairs: list[list[tuple[int, int]]]
    indent: Indent


class Target:
    """A file's text, prepared for searching; each preparation is made once and only when it is needed.

    Args:
        document: the file.
        dashes: typographic dashes are about, in the file or in the search.
    """

    def __init__(self, document: Document, *, dashes: bool) -> None:
        self.document = document
        self.dashes = dashes
        self._memo: dict[tuple[str, str], tuple[int, str, str] | None] = {}

    @cached_property
    def lf(self) -> str:
        """The text with line feeds only."""
        return to_lf(self.document.text, old_mac=self.document.old_mac)

    @cached_property
    def end_kinds(self) -> frozenset[str]:
        """Which line ends the file has."""
        return frozenset(self.document.ends) - {""}

    @cached_property
    def offsets(self) -> list[int]:
        """Where each line starts."""
        return self.document.offsets()

    @cached_property
    def rows(self) -> list[int]:
        """Rows of the lines that are not blank."""
        return [row for row, key in enumerate(self._all_keys) if key]

    @cached_property
    def keys(self) -> list[str]:
        """Loose keys of the lines that are not blank, in the order of `rows`."""
        return [key for key in self._all_keys if key]

    @cached_property
    def key_set(self) -> frozenset[str]:
        """All loose keys."""
        return frozenset(self.keys)

    @cached_property
    def _all_keys(self) -> list[str]:
        return loose_keys("\n".join(self.document.lines), dashes=self.dashes)

    @cached_property
    def states(self) -> list[str]:
        """Which string, if any, each line starts in."""
        return line_states(self.document.lines)

    def keys_of(self, lines: Sequence[str]) -> list[str]:
        """Loose keys of the lines of a search that are not blank."""
        return [key for key in loose_keys("\n".join(lines), dashes=self.dashes) if key]

    def blanks_before(self, ordinal: int) -> int:
        """How many blank lines stand right before the line `rows[ordinal]`, or at the end of the file."""
        above = self.rows[ordinal - 1] if ordinal else -1
        row = self.rows[ordinal] if ordinal < len(self.rows) else len(self.document.lines)
        return row - above - 1

    def pair(self, row: int, want: str) -> tuple[int, str, str] | None:
        """Compare a line of the file with one of the search: bits, the file's and the search's indentation."""
        line = self.document.lines[row]
        key = (line, want)
        if key in self._memo:
            return self._memo[key]
        by_state: list[None] = []

        def state() -> str:
            by_state.append(None)
            return self.states[row]

        found = _compare(line, want, state)
        if not by_state:
            self._memo[key] = found
        return found


def places(target: Target, chunks: Sequence[Sequence[str]], fresh: Sequence[str]) -> list[Place]:
    """All places where the chunks stand as whole lines, one behind the other, with other lines between them.

    Args:
        target: the file.
        chunks: lines of the search, in one chunk or, where `...` divides it, in several.
        fresh: lines of the replacement.

    Raises:
        TooMany: it fits so often that the places are not even told apart.
    """
    keys = [target.keys_of(chunk) for chunk in chunks]
    if not all(keys) or any(key not in target.key_set for chunk in keys for key in chunk):
        return []
    starts = [runs_of(target.keys, chunk) for chunk in keys]
    if not all(starts):
        return []
    sizes = [len(chunk) for chunk in keys]
    if len(starts[0]) * sizes[0] > _PAIRS:
        raise TooMany([target.rows[start] for start in starts[0][:2]])
    if len(chunks) == 1:
        placements: list[tuple[int, ...]] = [(start,) for start in starts[0]]
    else:
        placements = []
        for placement in _placements(starts, sizes, 0, 0):
            placements.append(placement)
            if len(placements) > _PLACEMENTS:
                raise TooMany([target.rows[each[0]] for each in placements[:2]])
    found = (_verify(target, chunks, placement, fresh) for placement in placements)
    return [place for place in found if place is not None]


def runs_of(hay: Sequence[str], needle: Sequence[str]) -> list[int]:
    """Every index at which `needle` stands in `hay`, overlapping ones too, in linear time."""
    codes = {key: code for code, key in enumerate(dict.fromkeys(needle))}
    pattern = [codes[key] for key in needle]
    border = [0] * len(pattern)
    length = 0
    for index in range(1, len(pattern)):
        while length and pattern[index] != pattern[length]:
            length = border[length - 1]
        length += pattern[index] == pattern[length]
        border[index] = length
    found: list[int] = []
    length = 0
    for index, key in enumerate(hay):
        code = codes.get(key, -1)
        while length and (length == len(pattern) or code != pattern[length]):
            length = border[length - 1]
        length += code == pattern[length]
        if length == len(pattern):
            found.append(index + 1 - length)
    return found


def _placements(
    starts: Sequence[Sequence[int]], sizes: Sequence[int], chunk: int, floor: int
) -> Iterator[tuple[int, ...]]:
    from bisect import bisect_left

    if chunk == len(starts):
        yield ()
        return
    for start in starts[chunk][bisect_left(starts[chunk], floor) :]:
        for rest in _placements(starts, sizes, chunk + 1, start + sizes[chunk] + 1):
            yield (start, *rest)


def _verify(
    target: Target, chunks: Sequence[Sequence[str]], placement: Sequence[int], fresh: Sequence[str]
) -> Place | None:
    bits = 0
    indents: list[tuple[str, str]] = []
    pairs: list[list[tuple[int, int]]] = []
    for chunk, start in zip(chunks, placement, strict=True):
        mine: list[tuple[int, int]] = []
        for at, want in enumerate(chunk):
            if not want.strip():
                continue
            row = target.rows[start + len(mine)]
            compared = target.pair(row, want)
            if compared is None:
                return None
            bits |= compared[0]
            indents.append(compared[1:])
            if mine and at - mine[-1][0] != row - mine[-1][1]:
                bits |= BLANKS
            mine.append((at, row))
        if target.blanks_before(start) < mine[0][0]:
            bits |= BLANKS
        if target.blanks_before(start + len(mine)) < len(chunk) - 1 - mine[-1][0]:
            bits |= BLANKS
        pairs.append(mine)
    related = relate(indents, fresh)
    return None if related is None else Place(bits | related[0], pairs, related[1])


def _compare(line: str, want: str, state: Callable[[], str]) -> tuple[int, str, str] | None:
    bits = 0
    have, sought = line.rstrip(), want.rstrip()
    if line[len(have) :] != want[len(sought) :]:
        bits |= TRAIL
    have, odd = _plain_lead(have)
    sought, odd_sought = _plain_lead(sought)
    if odd or odd_sought:
        bits |= TYPO
    body, sought_body = have.lstrip(" \t"), sought.lstrip(" \t")
    margin = len(have) - len(body)
    agreed = agree(have, margin, len(have), sought_body, state)
    if agreed is None:
        return None
    indent = sought[: len(sought) - len(sought_body)]
    return bits | agreed, have[:margin], indent


def _plain_lead(line: str) -> tuple[str, bool]:
    """`line` with plain blanks in its indentation, and whether it had others."""
    lead = line[: len(line) - len(line.lstrip())]
    return (line, False) if lead.isascii() else (fold(lead) + line[len(lead) :], True)
