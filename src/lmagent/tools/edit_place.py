"""From a place that was found to the splice that edits it."""

from __future__ import annotations

from collections.abc import Sequence

from lmagent.tools.edit_forms import Chunks
from lmagent.tools.edit_inline import Stretch
from lmagent.tools.edit_match import Place, Target
from lmagent.tools.edit_shift import is_indented_like_the_file, settled
from lmagent.tools.edit_text import Document, Splice, end_near
from lmagent.tools.edit_weave import Held, Piece, joined, weave

Pairs = Sequence[tuple[int, int]]


def placed(target: Target, chunks: Chunks, place: Place) -> list[Splice]:
    """The splices, one a chunk, that edit whole lines.

    Raises:
        Unshiftable: the new text cannot be shifted like the search.
        Doubtful: it may be indented like the file already.
    """
    settle = is_indented_like_the_file(target, chunks, place)
    splices: list[Splice] = []
    for number, (lines, fresh, pairs) in enumerate(zip(chunks.search, chunks.replace, place.pairs, strict=True)):
        held, first, stop = _held(target.document, lines, pairs)

        def adapted(index: int, fresh: Sequence[str] = fresh, head: bool = number == 0) -> str:
            return place.indent.adapt(fresh[index], is_first=head and index == 0)

        end = end_near(target.document, first, stop)
        if settle:
            same = settled(place.indent)
            moved = [place.indent.adapt(line, is_first=False) for line in lines]
            own = [same.adapt(line, is_first=False) for line in fresh]
            pieces = weave(moved, own, held, own.__getitem__, end)
        else:
            pieces = weave(lines, fresh, held, adapted, end)
        new = joined(pieces, end, target.document.ends[stop - 1])
        splices.append(Splice(target.offsets[first], target.offsets[stop], new))
    return splices


def stretched(target: Target, lines: Sequence[str], fresh: Sequence[str], found: Stretch) -> Splice:
    """The splice that edits a stretch which starts or ends inside a line."""
    document = target.document
    (first, begin), (last, stop) = found.start, found.stop
    held, _, _ = _held(document, lines, found.pairs)
    end = end_near(document, first, last + 1)
    if first == last:
        held[0] = Held((document.lines[first][begin:stop], ""))
    else:
        held[0] = Held((document.lines[first][begin:], document.ends[first]))
        held[-1] = Held((document.lines[last][:stop], ""), held[-1].before)
    pieces = weave(lines, fresh, held, lambda index: fresh[index], end)
    return Splice(target.offsets[first] + begin, target.offsets[last] + stop, joined(pieces, end, ""))


def without_shared_edges(
    lines: Sequence[str], fresh: Sequence[str], *, closed: bool
) -> tuple[list[str], list[str]] | None:
    """Search and replacement without the blanks that both start and (unless `closed`) end with.

    None where only the search has them: then it is not plain what should become of the file's blanks.
    """
    lines, fresh = list(lines), list(fresh)
    lead = lines[0][: len(lines[0]) - len(lines[0].lstrip())]
    if not fresh[0].startswith(lead):
        return None
    lines[0], fresh[0] = lines[0][len(lead) :], fresh[0][len(lead) :]
    tail = "" if closed else lines[-1][len(lines[-1].rstrip()) :]
    if not fresh[-1].endswith(tail):
        return None
    lines[-1], fresh[-1] = lines[-1].removesuffix(tail), fresh[-1].removesuffix(tail)
    return lines, fresh


def _held(document: Document, lines: Sequence[str], pairs: Pairs) -> tuple[list[Held], int, int]:
    """What the file has for each line of the search, and the rows from which and up to which that goes.

    Blank lines are paired in order between the lines around them; what the file has over is held by the next line.
    """
    held = [Held(None)] * len(lines)
    at, row = pairs[0]
    lead = _blanks(document, row - 1, -1, at)
    for count in range(1, lead + 1):
        held[at - count] = Held(_piece(document, row - count))
    previous = (at - 1, row - 1)
    for at, row in pairs:
        gap, file_gap = at - previous[0] - 1, row - previous[1] - 1
        shared = min(gap, file_gap)
        for count in range(1, shared + 1):
            held[previous[0] + count] = Held(_piece(document, previous[1] + count))
        extra = range(previous[1] + shared + 1, row)
        held[at] = Held(_piece(document, row), tuple(_piece(document, each) for each in extra))
        previous = (at, row)
    trail = _blanks(document, row + 1, 1, len(lines) - 1 - at)
    for count in range(1, trail + 1):
        held[at + count] = Held(_piece(document, row + count))
    return held, pairs[0][1] - lead, row + trail + 1


def _piece(document: Document, row: int) -> Piece:
    return document.lines[row], document.ends[row]


def _blanks(document: Document, row: int, step: int, limit: int) -> int:
    """How many blank lines there are from `row` on in one direction, up to `limit`."""
    count = 0
    while count < limit and 0 <= row < len(document.lines) and not document.lines[row].strip():
        count += 1
        row += step
    return count
