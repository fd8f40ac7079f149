"""Replace a piece of text that a model quotes, if and only if it is plain which piece it means.

A search is tried on a ladder, from the literal text upwards; the first rung that fits decides, and where it fits
several places the edit is refused instead of going on.

1. the exact text, anywhere; then the same with LF for CRLF;
2. whole lines, bridged: white space at line ends, a uniform shift of indentation, tabs for spaces, runs of blanks
   outside of string literals, blank lines, typography, a missing indentation of the first line, and all of these
   together; the place that needs the least of them, in this order, is taken;
3. a stretch that starts or ends inside a line, at the edges of words, bridged by line ends, runs of blanks, blank lines
   and typography;
4. the same three rungs without over-escaping; rung 2 without line numbers that a reading tool had put before the lines;
5. rung 2 in chunks, where search and replacement have paired `...` lines.

Nothing that is only similar is ever edited. Lines that search and replacement share keep the file's own bytes. The
byte order mark, the line ends and whether there is a last newline stay as they are. New text is moved by as much as the
search was off, unless it is indented like the file already (`edit_shift`).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TypeVar

from msgspec import Struct

from lmagent.tools import edit_exact, edit_report
from lmagent.tools.edit_fold import has_odd_dash
from lmagent.tools.edit_forms import Chunks, Form, divided, forms, looks_numbered
from lmagent.tools.edit_indent import FIRST, SHIFT, TABS, Unshiftable
from lmagent.tools.edit_inline import stretches
from lmagent.tools.edit_match import BLANKS, RUNS, TRAIL, TYPO, Target, TooMany, places
from lmagent.tools.edit_place import placed, stretched, without_shared_edges
from lmagent.tools.edit_report import EditRefused
from lmagent.tools.edit_shift import Doubtful
from lmagent.tools.edit_text import BOM, Splice, block_lines, document, keep_frame, splice

__all__ = ["EditRefused", "Edited", "edited", "replace_text"]

Found = TypeVar("Found")

_BRIDGES = (
    (SHIFT | TABS | FIRST, "indentation"),
    (TRAIL, "white space at line ends"),
    (RUNS, "runs of blanks"),
    (BLANKS, "blank lines"),
    (TYPO, "quotes, dashes or other typography"),
)


class Edited(Struct, frozen=True):
    """A text with an edit made.

    Attributes:
        text: the text.
        bridged: in what the search differed from the file, in words; empty for an exact match.
    """

    text: str
    bridged: tuple[str, ...] = ()


class _Match(Struct, frozen=True):
    splices: list[Splice]
    bridged: tuple[str, ...] = ()


def replace_text(source: str, search: str, replace: str, replace_all: bool = False) -> str:
    """`source` with `search` replaced; see `edited`."""
    return edited(source, search, replace, replace_all).text


def edited(source: str, search: str, replace: str, replace_all: bool = False) -> Edited:
    """`source` with `search` replaced; what may differ between `search` and the text is the ladder above.

    Args:
        source: the whole text of a file, with its own line ends.
        search: the text to find.
        replace: what takes its place; line ends in it become those of the place.
        replace_all: replace every place of the rung that fits, not only a single one.

    Raises:
        EditRefused: the search is empty, is not found, fits several places, or nothing would change.
    """
    body = source.removeprefix(BOM)
    mark = source[: len(source) - len(body)]
    if search.startswith(BOM) and search not in body:
        search, replace = search.removeprefix(BOM), replace.removeprefix(BOM)
    if not search:
        raise edit_report.empty()
    target = Target(document(body), dashes=has_odd_dash(body) or has_odd_dash(search))
    if search == replace:
        raise edit_report.unchanged()
    try:
        match = _find(target, search, replace, every=replace_all)
    except TooMany as found:
        raise edit_report.ambiguous(target, [row + 1 for row in found.rows], more=True) from None
    except Unshiftable as line:
        raise edit_report.unshiftable(str(line)) from None
    except Doubtful as doubt:
        raise edit_report.doubtful(*doubt.lines) from None
    if match is None:
        raise edit_report.missing(target, search, replace)
    after = keep_frame(body, splice(body, match.splices))
    if after == body:
        raise edit_report.unchanged()
    return Edited(mark + after, match.bridged)


def _find(target: Target, search: str, replace: str, *, every: bool) -> _Match | None:
    old_mac = target.document.old_mac
    readings = list(forms(search, replace))
    for form in readings:
        found = _literal(target, form, every=every) if not form.mark else None
        if found is None:
            found = _whole_lines(target, _one_chunk(form, old_mac=old_mac), every=every)
        if found is None and not form.mark:
            found = _inside_lines(target, form, every=every)
        if found is not None:
            return _unless_numbered(target, form, found, search)
    for form in readings:
        chunks = divided(form, old_mac=old_mac)
        found = None if chunks is None else _whole_lines(target, chunks, every=every)
        if found is not None:
            return _unless_numbered(target, form, found, search)
    return None


def _unless_numbered(target: Target, form: Form, found: _Match, search: str) -> _Match | None:
    if not form.mark:
        return found if form.search == search else _Match(found.splices, ("escapes", *found.bridged))
    return (
        None if looks_numbered(target.document.lines, form) else _Match(found.splices, ("line numbers", *found.bridged))
    )


def _literal(target: Target, form: Form, *, every: bool) -> _Match | None:
    def exact(*, overlapping: bool) -> Sequence[edit_exact.Span]:
        spans = edit_exact.exact_spans(target.document, form.search, overlapping=overlapping)
        return list(spans if every else islice(spans, edit_report.LISTED + 1))

    def same_but_ends(*, overlapping: bool) -> Sequence[edit_exact.Span]:
        spans = edit_exact.lf_spans(target, form.search, overlapping=overlapping)
        return list(spans if every else islice(spans, edit_report.LISTED + 1))

    if every and len(target.end_kinds) < 2:
        splices = edit_exact.all_replaced(target, form.search, form.replace)
        bridged = () if form.search in target.document.text else ("line ends",)
        return None if splices is None else _Match(splices, bridged)
    for rung, bridged in ((exact, ()), (same_but_ends, ("line ends",))):
        spans = rung(overlapping=not every)
        if len(spans) > 1 and not every:
            text = target.document.text
            raise edit_report.ambiguous(target, [_line_of(text, start) for start, _ in spans])
        if len(spans) == 1 and (replace := edit_exact.without_doubled_indent(target, spans[0], form)) is not None:
            return _Match([edit_exact.replaced(target, spans[0], form.search, replace)], ("indentation", *bridged))
        if spans:
            return _Match([edit_exact.replaced(target, span, form.search, form.replace) for span in spans], bridged)
    return None


def _line_of(text: str, position: int) -> int:
    mark = "\n" if "\n" in text else "\r"
    return text.count(mark, 0, position) + 1


def _one_chunk(form: Form, *, old_mac: bool) -> Chunks:
    lines, closed = block_lines(form.search, old_mac=old_mac)
    fresh, _ = block_lines(form.replace, old_mac=old_mac)
    return Chunks([lines], [fresh if fresh or closed else [""]])  # a line without its end leaves an empty line


def _whole_lines(target: Target, chunks: Chunks, *, every: bool) -> _Match | None:
    found = places(target, chunks.search, [line for chunk in chunks.replace for line in chunk])
    best = _least(target, [(each.bits, each.pairs[0][0][1], each) for each in found], every=every)
    if best is not None and len(best) > 1 and len(chunks.search) > 1:
        raise edit_report.ambiguous(target, [each.pairs[0][0][1] + 1 for each in best])
    if best is None:
        return None
    return _Match(_apart([placed(target, chunks, each) for each in best]), _told(best[0].bits))


def _inside_lines(target: Target, form: Form, *, every: bool) -> _Match | None:
    lines, closed = block_lines(form.search, old_mac=target.document.old_mac)
    fresh, _ = block_lines(form.replace, old_mac=target.document.old_mac)
    edges = without_shared_edges(lines, fresh or [""], closed=closed) if lines else None
    if edges is None:
        return None
    lines, fresh = edges
    found = stretches(target, lines, closed=closed)
    best = _least(target, [(each.bits, each.start[0], each) for each in found], every=every)
    if best is None:
        return None
    return _Match(_apart([[stretched(target, lines, fresh, each)] for each in best]), _told(best[0].bits))


def _told(bits: int) -> tuple[str, ...]:
    return tuple(words for bit, words in _BRIDGES if bits & bit)


def _least(target: Target, found: Sequence[tuple[int, int, Found]], *, every: bool) -> list[Found] | None:
    """Of (bits, row, place): the least bridged place, or with `every` all that need just the same bridges."""
    if not found:
        return None
    least = min(bits for bits, _, _ in found)
    best = [(row, place) for bits, row, place in found if bits == least]
    if len(best) > 1 and not every:
        raise edit_report.ambiguous(target, [row + 1 for row, _ in best])
    return [place for _, place in best]


def _apart(edits: Sequence[list[Splice]]) -> list[Splice]:
    """The splices of all places that do not overlap one before them."""
    splices: list[Splice] = []
    for each in edits:
        if not splices or each[0].start >= splices[-1].stop:
            splices += each
    return splices
