"""Replaces a piece of text that a model quotes, if and only if it is plain which piece it means.

A search is tried in this order; the first step that fits decides, and if it fits several places the edit is refused.

1. The exact text, anywhere; then the same with LF for CRLF.
2. Whole lines, with the differences of `bridges.BRIDGES` and a missing indentation of the first line bridged. The place
   that needs the least of them is taken.
3. A stretch that starts or ends inside a line, at the edges of words, with the same bridges except indentation.
4. The same three steps without over-escaping; step 2 without line numbers that a reading tool put before the lines.
5. Step 2 in chunks, where search and replacement have paired `...` lines.

Lines that search and replacement share keep the file's own bytes; mark and line ends do not change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from lmagent.tools.edit import refusals
from lmagent.tools.edit.bridges import BRIDGES, Indent, Unshiftable, indent_of, loose_keys, width
from lmagent.tools.edit.places import (
    DottedChunks,
    EditPlace,
    EditText,
    Form,
    divided,
    forms,
    inside_places,
    looks_numbered,
    one_chunk,
    whole_places,
)
from lmagent.tools.edit.refusals import EditRefused

__all__ = ["EditRefused", "EditedText", "edited", "replace_text"]

_BOM = "\ufeff"
_DIFF_CELLS = (
    250_000  # lines of search times lines of replacement up to which the middle of their difference is looked at
)


class EditedText(Struct, frozen=True):
    """A text with an edit made; `bridged` names the differences between search and file, none for an exact match."""

    text: str
    bridged: tuple[str, ...] = ()


class _Splice(Struct, frozen=True):
    """`text[start:stop]` becomes `new`."""

    start: int
    stop: int
    new: str


class _Match(Struct, frozen=True):
    splices: list[_Splice]
    bridged: tuple[str, ...] = ()


def replace_text(source: str, search: str, replace: str, replace_all: bool = False) -> str:
    return edited(source, search, replace, replace_all).text


def edited(source: str, search: str, replace: str, replace_all: bool = False) -> EditedText:
    """Replace `search` in `source`; the module's docstring lists the differences that are allowed between the two.

    `replace_all` replaces all places of the step that fits. New lines get the line ends of their place.
    Raises EditRefused.
    """
    body = source.removeprefix(_BOM)
    mark = source[: len(source) - len(body)]
    if search.startswith(_BOM) and search not in body:
        search, replace = search.removeprefix(_BOM), replace.removeprefix(_BOM)
    if not search:
        raise refusals.empty()
    text = EditText(body)
    if search == replace:
        raise refusals.unchanged()
    try:
        match = _find(text, search, replace, every=replace_all)
    except Unshiftable as line:
        raise refusals.unshiftable(str(line)) from None
    if match is None:
        raise refusals.missing(text, text.to_lf(search), text.to_lf(replace))
    after = _with_ends(text, match.splices, "\r\n" if "\r\n" in replace else "\n")
    if after == body:
        raise refusals.unchanged()
    return EditedText(mark + after, match.bridged)


def _find(text: EditText, search: str, replace: str, *, every: bool) -> _Match | None:
    sought = text.to_lf(search)
    readings = list(forms(sought, text.to_lf(replace)))
    for form in readings:
        raw = search if form.search == sought else form.search
        found = None if form.mark else _literal(text, form, raw, every=every)
        if found is None:
            chunks = one_chunk(form)
            places = whole_places(text, chunks) or ([] if form.mark else inside_places(text, form))
            found = _least(text, chunks, places, every=every)
        if found is not None:
            return _unless_numbered(text, form, found, sought)
    for form in readings:
        chunks = divided(form)
        found = chunks and _least(text, chunks, whole_places(text, chunks), every=False)
        if found:
            return _unless_numbered(text, form, found, sought)
    return None


def _unless_numbered(text: EditText, form: Form, found: _Match, sought: str) -> _Match | None:
    if form.mark:
        numbered = looks_numbered(text.lines, form)
        return None if numbered else _Match(found.splices, ("line numbers", *found.bridged))
    return found if form.search == sought else _Match(found.splices, ("escapes", *found.bridged))


def _literal(text: EditText, form: Form, raw: str, *, every: bool) -> _Match | None:
    spans = text.spans(form.search, every=every)
    bridged = () if raw in text.body else ("line ends",)
    if len(spans) > 1 and not every:
        raise refusals.ambiguous(text.lines, [text.lf.count("\n", 0, start) for start, _ in spans])
    if len(spans) == 1 and _doubles_indent(text, spans[0][0], form):
        indent, bridged = text.indent_before(spans[0][0]), ("indentation", *bridged)
        return _Match([_Splice(*spans[0], form.replace.removeprefix(indent))], bridged)
    return _Match([_Splice(*span, form.replace) for span in spans], bridged) if spans else None


def _doubles_indent(text: EditText, start: int, form: Form) -> bool:
    """Return whether the replacement repeats the indentation before the place, which the search lacks.

    That is so if the replacement has a line of the place exactly as in the file. Refuse if it moves such a line.
    """
    indent = text.indent_before(start)
    first, *rest = form.search.split("\n")
    place = [line for line in (indent + first, *rest) if line.strip()]
    lines = form.replace.split("\n")
    if not indent or len(lines) < 2 or not place or not lines[0].startswith(indent_of(place[0])):
        return False
    moved = {line.strip() for line in lines if line not in place} & {line.strip() for line in place}
    if moved:
        row = text.lf.count("\n", 0, start)
        raise refusals.doubtful(row, row + len(rest))
    return any(line in place for line in lines)


def _least(text: EditText, chunks: DottedChunks, found: Sequence[EditPlace], *, every: bool) -> _Match | None:
    """Edit the place that needs the least bridges; with `every`, all that need just the same."""
    if not found:
        return None
    least = min(place.bits for place in found)
    best = [place for place in found if place.bits == least]
    if len(best) > 1 and not every:
        raise refusals.ambiguous(text.lines, [place.row for place in best])
    splices: list[_Splice] = []
    for place in best:
        mine = list(_placed(text, place.chunks or chunks, place))
        if not splices or mine[0].start >= splices[-1].stop:
            splices += mine
    return _Match(splices, tuple(told for bit, told in BRIDGES if least & bit))


def _placed(text: EditText, chunks: DottedChunks, place: EditPlace) -> Iterator[_Splice]:
    """Yield the splices, one a chunk, that edit a place; raise `Unshiftable` where that cannot be."""
    settled = _is_indented_like_the_file(text, chunks, place)
    plan = place.indent
    for number, (search, replace, own) in enumerate(zip(chunks.search, chunks.replace, place.own, strict=True)):
        rows = [row for row in own if row is not None]
        first, last = rows[0], rows[-1]
        stop = len(text.lines[last]) if place.stop is None else place.stop
        region = [*text.lines[first:last], text.lines[last][:stop]]
        region[0] = region[0][place.begin :]
        if settled:
            same = Indent(unit=plan.unit, tabs=plan.tabs)
            moved = [plan.adapt(line, is_first=False) for line in search]
            fresh = [same.adapt(line, is_first=False) for line in replace]
            new = _weave(region, [*own, last + 1], moved, fresh, fresh.__getitem__)
        else:

            def adapted(index: int, replace: Sequence[str] = replace, head: bool = number == 0) -> str:
                return plan.adapt(replace[index], is_first=head and index == 0)

            new = _weave(region, [*own, last + 1], search, replace, adapted)
        end = text.offsets[last] + stop
        if not new:
            end = min(end + 1, len(text.lf))  # the line goes as a whole, with its end
        yield _Splice(text.offsets[first] + place.begin, end, "\n".join(new))


def _is_indented_like_the_file(text: EditText, chunks: DottedChunks, place: EditPlace) -> bool:
    """Return whether the replacement has the file's indentation already, so that it must not be moved.

    The lines that the replacement shares with the place decide; if they do not, both may be meant: refuse.
    """
    if not place.indent.moves:
        return False
    unit = place.indent.unit or 4
    file: dict[str, set[int]] = {}
    search: dict[str, set[int]] = {}
    for lines, own in zip(chunks.search, place.own, strict=True):
        for line, row, key in zip(lines, own, loose_keys("\n".join(lines)), strict=True):
            if key and row is not None:
                search.setdefault(key, set()).add(width(indent_of(line), unit))
                file.setdefault(key, set()).add(width(indent_of(text.lines[row]), unit))
    lines = [line for chunk in chunks.replace for line in chunk if line.strip()]
    if not lines:
        return False
    keys = loose_keys("\n".join(lines))
    columns = [width(indent_of(line), unit) for line in lines]
    sides = {(at in file.get(key, ()), at in search.get(key, ())) for key, at in zip(keys, columns, strict=True)}
    like_file, like_search = (True, False) in sides, (False, True) in sides
    file_floor, search_floor = (min(min(each) for each in side.values()) for side in (file, search))
    within_file = min(columns) >= file_floor if file_floor > search_floor else min(columns) < search_floor
    if like_file and not like_search:  # a first line further left encloses the old lines, which are moved with it
        return columns[0] >= file_floor if file_floor > search_floor else within_file
    if within_file and (like_file or not like_search):
        raise refusals.doubtful(place.row, max(row for own in place.own for row in own if row is not None))
    return False


def _weave(
    region: Sequence[str],
    own: Sequence[int | None],
    search: Sequence[str],
    replace: Sequence[str],
    fresh: Callable[[int], str],
) -> list[str]:
    """Return the new lines of a region; those that search and replacement share stay as in the file.

    Args:
        own: for each line of the search, and its end, the file's row; None for a blank line that the file lacks.
        fresh: returns a line of the replacement that is not in the search, by its index.
    """
    base = next(row for row in own if row is not None)
    starts, rows, at = list[int](), list[int](), 0  # blank lines that the search lacks are from starts[i] up to rows[i]
    for row in own:
        starts.append(at)
        rows.append(at if row is None else row - base)
        at = at if row is None else row - base + 1
    out: list[str] = []
    done = 0
    for first, stop, new_first, new_stop in _differing(search, replace):
        out += region[starts[done] : starts[first]]
        before = region[starts[first] : rows[first]] if first < stop else region[:0]
        after = region[starts[stop] : rows[stop]]
        out += before
        head, tail = _blanks(replace[new_first:new_stop], len(before), len(after))
        out += [fresh(index) for index in range(new_first + head, new_stop - tail)]
        done = stop
    return [*out, *region[starts[done] : rows[-1]]]


def _blanks(lines: Sequence[str], before: int, after: int) -> tuple[int, int]:
    """Return how many blank lines at the start and at the end of new lines the file has there already."""
    lead = next((at for at, line in enumerate(lines) if line.strip()), len(lines))
    head = min(lead, before)
    rest = lines[head:]
    trail = next((at for at, line in enumerate(reversed(rest)) if line.strip()), len(rest))
    return head, min(trail, after)


def _differing(old: Sequence[str], new: Sequence[str]) -> list[tuple[int, int, int, int]]:
    """Return the blocks in which old[a:b] becomes new[c:d], in order, with equal lines between them."""
    from difflib import SequenceMatcher  # most edits match at once

    head, shorter = 0, min(len(old), len(new))
    while head < shorter and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < shorter - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    middle, new_middle = old[head : len(old) - tail], new[head : len(new) - tail]
    if not middle and not new_middle:
        return []
    if not middle or not new_middle or len(middle) * len(new_middle) > _DIFF_CELLS:
        return [(head, head + len(middle), head, head + len(new_middle))]
    found = SequenceMatcher(None, middle, new_middle, autojunk=False).get_opcodes()
    return [(head + a, head + b, head + c, head + d) for kind, a, b, c, d in found if kind != "equal"]


def _with_ends(text: EditText, splices: Sequence[_Splice], endless: str) -> str:
    """Apply the splices and return the text with the file's own line ends, or `endless` where the file has none."""
    pieces: list[str] = []
    position = 0
    for one in splices:
        pieces += [text.lf[position : one.start], one.new]
        position = one.stop
    after = "".join([*pieces, text.lf[position:]])
    if not text.body.startswith(_BOM):
        after = after.lstrip(_BOM)
    if text.lf and after:
        after = after.rstrip("\n") if not text.lf.endswith("\n") else after if after.endswith("\n") else after + "\n"
    if len(text.kinds) < 2:
        return after.replace("\n", next(iter(text.kinds), endless))
    old, new = text.lf.split("\n"), after.split("\n")
    own, ends, done = [*text.ends, text.ends[-1]], list[str](), 0
    for a, b, c, d in [*_differing(old, new), (len(old), len(old), len(new), len(new))]:
        ends += own[done:a]  # a line that stays keeps its own end, a new one gets that of its place
        here = own[a:b] or [ends[-1] if ends else own[-1]]
        ends += [here[min(at, len(here) - 1)] for at in range(d - c)]
        done = b
    return "".join(line + end for line, end in zip(new, [*ends[: len(new) - 1], ""], strict=True))
