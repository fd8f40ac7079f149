"""The literal rungs: the search as it stands, then the same but for line feeds against carriage return line feeds."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from lmagent.tools.edit_forms import Form
from lmagent.tools.edit_indent import indent_of
from lmagent.tools.edit_match import Target
from lmagent.tools.edit_shift import Doubtful
from lmagent.tools.edit_text import Document, Splice, split_lines, to_lf
from lmagent.tools.edit_weave import Held, joined, weave

Span = tuple[int, int]


def exact_spans(document: Document, search: str, *, overlapping: bool) -> Iterator[Span]:
    """Where the text has `search`, byte for byte; never half of a carriage return line feed."""
    for start in _finds(document.text, search, overlapping=overlapping):
        stop = start + len(search)
        if not _halves(document.text, start) and not _halves(document.text, stop):
            yield start, stop


def lf_spans(target: Target, search: str, *, overlapping: bool) -> Iterator[Span]:
    """Where the text has `search` if every line end is a line feed; offsets are those of the text as it is."""
    document = target.document
    if "\r" not in document.text and "\r" not in search:
        return
    sought = to_lf(search, old_mac=document.old_mac)
    if not sought:
        return
    starts = [0]
    for line, end in zip(document.lines, document.ends, strict=True):
        starts.append(starts[-1] + len(line) + bool(end))

    def origin(position: int) -> int:
        row = min(bisect_right(starts, position) - 1, len(document.lines))
        return target.offsets[row] + position - starts[row]

    for start in _finds(target.lf, sought, overlapping=overlapping):
        yield origin(start), origin(start + len(sought))


def all_replaced(target: Target, search: str, replace: str) -> list[Splice] | None:
    """The splice that replaces every place at once, for a text with one kind of line end; None if there is no place."""
    document = target.document
    sought = to_lf(search, old_mac=document.old_mac)
    if sought not in target.lf:
        return None
    end = next(iter(target.end_kinds), "")
    new = to_lf(replace, old_mac=document.old_mac) if end else replace
    text = target.lf.replace(sought, new)
    return [Splice(0, len(document.text), text if end in ("", "\n") else text.replace("\n", end))]


def replaced(target: Target, span: Span, search: str, replace: str) -> Splice:
    """The splice that puts `replace` there, with the line ends of the place."""
    start, stop = span
    document = target.document
    new = to_lf(replace)
    region = document.text[start:stop]
    kinds = target.end_kinds
    if "\n" not in new or not kinds:
        return Splice(start, stop, replace if not kinds else new)
    here = set(kinds) if len(kinds) == 1 else _ends(region)
    if not here:
        row = min(bisect_right(target.offsets, start) - 1, len(document.lines) - 1)
        here = {_end_at(document, row)}
    if len(here) == 1:
        return Splice(start, stop, new.replace("\n", here.pop()))
    lines, ends = split_lines(region)
    if ends[-1]:
        lines, ends = [*lines, ""], [*ends, ""]
    held = [Held(piece) for piece in zip(lines, ends, strict=True)]
    fresh = new.split("\n")
    pieces = weave(to_lf(search).split("\n"), fresh, held, lambda index: fresh[index], "\n")
    return Splice(start, stop, joined(pieces, "\n", ""))


def without_doubled_indent(target: Target, span: Span, form: Form) -> str | None:
    """The replacement without its first indentation, where the line has that already before the place; else None.

    So it is where the search lacks the indentation of its first line, and the replacement has lines of the place as far
    in as the file has them.

    Raises:
        Doubtful: it has others of them further in or out.
    """
    text = target.document.text
    start = span[0]
    indent = text[max(text.rfind("\n", 0, start), text.rfind("\r", 0, start)) + 1 : start]
    first, *rest = to_lf(form.search).split("\n")
    place = [line for line in (indent + first, *rest) if line.strip()]
    lines = to_lf(form.replace).split("\n")
    if not indent or indent.strip(" \t") or len(lines) < 2 or not place or not form.replace.startswith(indent):
        return None
    kept = [line for line in lines if line in place]
    moved = {line.strip() for line in lines if line not in place} & {line.strip() for line in place}
    if not lines[0].startswith(indent_of(place[0])):
        return None
    if moved:
        row = text.count("\n", 0, start) + 1
        raise Doubtful(row, row + len(rest))
    return form.replace[len(indent) :] if kept else None


def _finds(text: str, sought: str, *, overlapping: bool) -> Iterator[int]:
    step = 1 if overlapping else len(sought)
    at = text.find(sought)
    while at >= 0:
        yield at
        at = text.find(sought, at + step)


def _halves(text: str, position: int) -> bool:
    return text[position - 1 : position + 1] == "\r\n" if position else False


def _ends(region: str) -> set[str]:
    both = region.count("\r\n")
    return ({"\r\n"} if both else set[str]()) | ({"\n"} if region.count("\n") > both else set[str]())


def _end_at(document: Document, row: int) -> str:
    """The end of the line, or of the nearest one above that has an end."""
    return next((document.ends[at] for at in range(row, -1, -1) if document.ends[at]), document.ends[0] or "\n")
