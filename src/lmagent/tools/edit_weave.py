"""Put new lines in the place of matched ones, keeping every line that search and replacement share as the file has it.

The difference between search and replacement is what the model wants changed; the rest it only quoted, perhaps not to
the letter. So the edit is that difference, laid over the file's own lines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

_DIFF_CELLS = 250_000
"""Lines of search times lines of replacement up to which their difference is looked for in the middle."""

Piece = tuple[str, str]
"""A line (or the matched part of one) and its line end."""

Block = tuple[int, int, int, int]
"""search[a:b] becomes replace[c:d]; blocks that are equal are left out."""


class Held(Struct, frozen=True):
    """What the file has for a line of the search: the line itself (None: a blank one that the file lacks), and blank
    lines before it that the search lacks.
    """

    own: Piece | None
    before: tuple[Piece, ...] = ()


def weave(
    search: Sequence[str], replace: Sequence[str], held: Sequence[Held], fresh: Callable[[int], str], end: str
) -> list[Piece]:
    """The pieces that take the matched region's place.

    Args:
        search: lines of the search.
        replace: lines of the replacement.
        held: the file's side, one for each line of the search.
        fresh: the text of a line of the replacement that is not in the search, by its index.
        end: line end where the region has none to go by.
    """
    out: list[Piece] = []

    def keep(first: int, stop: int) -> None:
        for each in held[first:stop]:
            out.extend(each.before)
            if each.own is not None:
                out.append(each.own)

    done = 0
    for first, stop, new_first, new_stop in differing(search, replace):
        keep(done, first)
        if first < stop:
            out.extend(held[first].before)
        ends = [each.own[1] for each in held[first:stop] if each.own is not None and each.own[1]]
        skipped = _shared_blanks(held, (first, stop), replace[new_first:new_stop])
        for count, index in enumerate(range(new_first + skipped[0], new_stop - skipped[1])):
            near = ends[min(count, len(ends) - 1)] if ends else next((e for _, e in reversed(out) if e), end)
            out.append((fresh(index), near))
        done = stop
    keep(done, len(search))
    return out


def _shared_blanks(held: Sequence[Held], block: tuple[int, int], fresh: Sequence[str]) -> tuple[int, int]:
    """How many blank lines at the start and at the end of a block's new lines the file has there already."""
    first, stop = block
    before = len(held[first].before) if first < stop else 0
    behind = len(held[stop].before) if stop < len(held) else 0
    lead = next((at for at, line in enumerate(fresh) if line.strip()), len(fresh))
    head = min(lead, before)
    rest = fresh[head:]
    trail = next((at for at, line in enumerate(reversed(rest)) if line.strip()), len(rest))
    return head, min(trail, behind)


def joined(pieces: Sequence[Piece], end: str, last: str) -> str:
    """The pieces as text: each but the last has a line end (`end` where it came without), the last one has `last`."""
    if not pieces:
        return ""
    return "".join(line + (own or end) for line, own in pieces[:-1]) + pieces[-1][0] + last


def differing(search: Sequence[str], replace: Sequence[str]) -> list[Block]:
    """Where search and replacement differ, in order, with equal lines between any two blocks."""
    head = 0
    shorter = min(len(search), len(replace))
    while head < shorter and search[head] == replace[head]:
        head += 1
    tail = 0
    while tail < shorter - head and search[-1 - tail] == replace[-1 - tail]:
        tail += 1
    middle, new_middle = search[head : len(search) - tail], replace[head : len(replace) - tail]
    if not middle and not new_middle:
        return []
    if not middle or not new_middle or len(middle) * len(new_middle) > _DIFF_CELLS:
        return [(head, head + len(middle), head, head + len(new_middle))]
    from difflib import SequenceMatcher

    found = SequenceMatcher(None, middle, new_middle, autojunk=False).get_opcodes()
    return [(head + a, head + b, head + c, head + d) for kind, a, b, c, d in found if kind != "equal"]
