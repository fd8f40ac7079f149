"""Is new text indented like the search that it came with, or like the file already?

A search that lacks the file's indentation is found all the same, and its replacement is then moved as far as the search
was off. A replacement that has the file's indentation must not be moved: the lines that it shares with the file tell.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from lmagent.tools.edit_fold import loose_keys
from lmagent.tools.edit_forms import Chunks
from lmagent.tools.edit_indent import Indent, indent_of, width
from lmagent.tools.edit_match import Place, Target


class Doubtful(Exception):
    """The replacement may be indented like the search or like the file; carries the first and the last line there."""

    def __init__(self, first: int, last: int) -> None:
        super().__init__(first, last)
        self.lines = (first, last)


class _Lines(Struct, frozen=True):
    """Columns before the lines of the place, by their keys, and before the lines of the replacement."""

    file: dict[str, set[int]]
    search: dict[str, set[int]]
    fresh: list[tuple[str, int]]


def is_indented_like_the_file(target: Target, chunks: Chunks, place: Place) -> bool:
    """Whether the replacement has the file's indentation already, so that it must not be moved.

    Raises:
        Doubtful: both may be meant.
    """
    if not place.indent.moves:
        return False
    lines = _measured(target, chunks, place)
    if not lines.fresh:
        return False
    like_file, like_search = _evidence(lines)
    file_floor, search_floor = (min(min(each) for each in side.values()) for side in (lines.file, lines.search))
    floor, first = min(column for _, column in lines.fresh), lines.fresh[0][1]
    if file_floor > search_floor:
        within_file, opens_further_left = floor >= file_floor, first < file_floor
    else:
        within_file = floor < search_floor
        opens_further_left = not within_file
    if like_file and not like_search:
        return not opens_further_left  # else the new first line encloses the old lines, which are further in
    if within_file and (like_file or not like_search):
        raise _doubt(place)
    return False


def settled(indent: Indent) -> Indent:
    """The plan for new text that is not to be moved: tabs and spaces become the file's all the same."""
    return Indent(unit=indent.unit, tabs=indent.tabs)


def _measured(target: Target, chunks: Chunks, place: Place) -> _Lines:
    unit = place.indent.unit or 4
    lines = _Lines({}, {}, [])
    for search, pairs in zip(chunks.search, place.pairs, strict=True):
        keys = _keys(target, search)
        for at, row in pairs:
            lines.search.setdefault(keys[at], set()).add(width(indent_of(search[at]), unit))
            lines.file.setdefault(keys[at], set()).add(width(indent_of(target.document.lines[row]), unit))
    for fresh in chunks.replace:
        for line, key in zip(fresh, _keys(target, fresh), strict=True):
            if key:
                lines.fresh.append((key, width(indent_of(line), unit)))
    return lines


def _keys(target: Target, lines: list[str]) -> list[str]:
    return loose_keys("\n".join(lines), dashes=target.dashes) if lines else []


def _evidence(lines: _Lines) -> tuple[bool, bool]:
    """Whether lines of the replacement are indented as in the file only, and as in the search only."""

    def sides() -> Iterator[tuple[bool, bool]]:
        for key, column in lines.fresh:
            yield column in lines.file.get(key, ()), column in lines.search.get(key, ())

    found = set(sides())
    return (True, False) in found, (False, True) in found


def _doubt(place: Place) -> Doubtful:
    rows = [row for pairs in place.pairs for _, row in pairs]
    return Doubtful(rows[0] + 1, rows[-1] + 1)
