"""How the indentation of a search relates to that of a file, and how new text is moved along."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from msgspec import Struct

SHIFT, TABS, FIRST = 2, 4, 64
"""Bits of `edit_match`: all lines shifted alike, tabs for spaces, indentation missing in the first line only."""

_UNITS = (4, 2, 8, 3)
Pairs = Sequence[tuple[str, str]]


class Unshiftable(Exception):
    """A line of the new text is indented less than it would have to be moved to the left."""


class Indent(Struct, frozen=True):
    """What happens to the indentation of each new line.

    `add` goes before it or `drop` is taken off it; or, with `unit` columns a tab, `delta` columns are added and the
    result is written in tabs (`tabs`) or spaces. `first` is what a first line without indentation gets.
    """

    add: str = ""
    drop: str = ""
    unit: int = 0
    delta: int = 0
    tabs: bool = False
    first: str = ""

    @property
    def moves(self) -> bool:
        """Whether all lines are moved, to the left or to the right."""
        return bool(self.add or self.drop or self.delta)

    def adapt(self, line: str, *, is_first: bool) -> str:
        """`line` of the new text as the file would indent it.

        Raises:
            Unshiftable: it cannot be moved to the left that far.
        """
        body = line.lstrip(" \t")
        if not body:
            return line if not self.drop and not self.unit else ""
        if is_first and self.first and body == line:
            return self.first + line
        if self.unit:
            columns = width(line[: len(line) - len(body)], self.unit) + self.delta
            if columns < 0:
                raise Unshiftable(line)
            if self.tabs:
                return "\t" * (columns // self.unit) + " " * (columns % self.unit) + body
            return " " * columns + body
        if self.drop:
            if not line.startswith(self.drop):
                raise Unshiftable(line)
            return line[len(self.drop) :]
        return self.add + line


def width(indent: str, unit: int) -> int:
    """Columns of `indent` with `unit` columns a tab."""
    return len(indent) + indent.count("\t") * (unit - 1)


def indent_of(line: str) -> str:
    """The blanks and tabs that `line` starts with."""
    return line[: len(line) - len(line.lstrip(" \t"))]


def relate(pairs: Pairs, fresh: Iterable[str]) -> tuple[int, Indent] | None:
    """The bits and the plan by which the search's indentation becomes the file's; None if no one plan does.

    Args:
        pairs: (the file's, the search's) indentation, for each matched line that is not blank.
        fresh: lines of the new text, for guessing the width of a tab.
    """
    if all(have == want for have, want in pairs):
        return 0, Indent()
    if (shifted := _shift(pairs)) is not None:
        return SHIFT, shifted
    first_have, first_want = pairs[0]
    headless = len(pairs) > 1 and not first_want and first_have != ""
    if headless and all(have == want for have, want in pairs[1:]):
        return FIRST, Indent(first=first_have)
    if not any("\t" in have or "\t" in want for have, want in pairs):
        return None
    return _retab(pairs, fresh, headless=headless)


def _shift(pairs: Pairs) -> Indent | None:
    have, want = pairs[0]
    if have.endswith(want):
        prefix = have[: len(have) - len(want)]
        return Indent(add=prefix) if all(have == prefix + want for have, want in pairs) else None
    if want.endswith(have):
        prefix = want[: len(want) - len(have)]
        return Indent(drop=prefix) if all(want == prefix + have for have, want in pairs) else None
    return None


def _retab(pairs: Pairs, fresh: Iterable[str], *, headless: bool) -> tuple[int, Indent] | None:
    tabs = any("\t" in have for have, _ in pairs)
    spaced = [want for _, want in pairs] + [indent_of(line) for line in fresh] if tabs else [have for have, _ in pairs]
    step = math.gcd(*(len(indent) for indent in spaced if "\t" not in indent))
    units = dict.fromkeys([step, *_UNITS] if 1 < step < 9 else _UNITS)
    for unit in units:
        if all(width(have, unit) == width(want, unit) for have, want in pairs):
            return TABS, Indent(unit=unit, tabs=tabs)
    for unit in units:
        deltas = {width(have, unit) - width(want, unit) for have, want in pairs}
        if len(deltas) == 1:
            return TABS | SHIFT, Indent(unit=unit, delta=deltas.pop(), tabs=tabs)
    for unit in units:
        if headless and all(width(have, unit) == width(want, unit) for have, want in pairs[1:]):
            return TABS | FIRST, Indent(unit=unit, tabs=tabs, first=pairs[0][0])
    return None
