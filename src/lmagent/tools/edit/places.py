"""Finds the places of a file that a search may mean, in each of its readings, and the bridges that each of them needs.

First all places are found that some bridge could reach (equal loose keys); then each is compared strictly.

A search is read as given, without line numbers that a reading tool printed, and without doubled escapes; search and
replacement are always changed alike. Line numbers have the forms of common reading tools: `12<tab>code`, `12→code`,
`12: code`, `12| code`, right-aligned or not.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import accumulate, pairwise

from msgspec import Struct

from lmagent.tools.edit import refusals
from lmagent.tools.edit.bridges import (
    BLANKS,
    INSIDE,
    TRAIL,
    Indent,
    agree,
    compare,
    indent_of,
    line_states,
    loose_keys,
    loose_pattern,
    relate,
    unclosed,
)

_BUDGET = 5_000_000  # characters compared; a search that fits more of a file than that is ambiguous
_LINE = 50  # characters that comparing a line costs besides its own
_PLACEMENTS = 200
_FREE = frozenset(" \t\n()[]{},;")
_QUOTES = frozenset("\"'`“”‘’«»")
_STOPS = frozenset(".,:;!?…")


_NUMBERED = re.compile(r"[ \t]*(\d{1,9})(\t|→|:|[ ]?[|│])(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(r\\n|[\\ntr\"'])")
_PLAIN = {"r\\n": "\n", "n": "\n", "t": "\t", "r": "\r"}
_KINDS = ("nqb", "q", "n")
_DOTS = ("...", "…")


class Form(Struct, frozen=True):
    """One reading of search and replacement; `mark` followed the line numbers that were taken off ('': no numbers)."""

    search: str
    replace: str
    mark: str = ""


class DottedChunks(Struct, frozen=True):
    """Search and replacement as lines, divided where both have a `...` line."""

    search: list[list[str]]
    replace: list[list[str]]


class EditPlace(Struct, frozen=True):
    """The place of a search in a file.

    Attributes:
        bits: the bridges that it needs.
        row: the file's row of the first line that is not blank.
        own: for each chunk, the file's row of each line of the search; None for a blank line that the file lacks.
        indent: how new lines are indented.
        begin: the column in the first line where the place begins.
        stop: the column in the last line where it ends; None at the line's end.
        chunks: search and replacement, if they differ from the ones that were looked for.
    """

    bits: int
    row: int
    own: list[list[int | None]]
    indent: Indent
    begin: int = 0
    stop: int | None = None
    chunks: DottedChunks | None = None


class EditText:
    """A file's text (without its byte order mark) with line feeds only, prepared for searching.

    A lone carriage return in `body` ends a line only where the text has no line feed.
    """

    def __init__(self, body: str) -> None:
        self.body = body
        self._old_mac = "\r" in body and "\n" not in body
        self.lf = self.to_lf(body)
        self.lines = self.lf.split("\n")
        if not self.lines[-1]:
            self.lines.pop()
        self._memo: dict[tuple[str, str, str], tuple[int, str, str] | None] = {}

    def to_lf(self, text: str) -> str:
        text = text.replace("\r\n", "\n")
        return text.replace("\r", "\n") if self._old_mac else text

    @cached_property
    def ends(self) -> list[str]:
        return re.findall("\r" if self._old_mac else "\r?\n", self.body)

    @cached_property
    def kinds(self) -> frozenset[str]:
        return frozenset(self.ends)

    @cached_property
    def offsets(self) -> list[int]:
        """Where each line starts in `lf`, and where a line after the last one would."""
        return list(accumulate((len(line) + 1 for line in self.lines), initial=0))

    @cached_property
    def _all_keys(self) -> list[str]:
        return loose_keys("\n".join(self.lines))

    @cached_property
    def rows(self) -> list[int]:
        return [row for row, key in enumerate(self._all_keys) if key]

    @cached_property
    def keys(self) -> list[str]:
        """Loose keys of the lines that are not blank, in the order of `rows`."""
        return [key for key in self._all_keys if key]

    @cached_property
    def _hay(self) -> str:
        return "\n".join(["", *self.keys, ""])

    @cached_property
    def _starts(self) -> list[int]:
        return list(accumulate((len(key) + 1 for key in self.keys), initial=1))

    @cached_property
    def states(self) -> list[str]:
        """The string, if any, that each line starts in."""
        return line_states(self.lines)

    def indent_before(self, position: int) -> str:
        """Return the indentation that ends at `position` of `lf`; '' if other text is before it in its line."""
        before = self.lf[self.lf.rfind("\n", 0, position) + 1 : position]
        return "" if before.strip(" \t") else before

    def spans(self, sought: str, *, every: bool) -> list[tuple[int, int]]:
        """Return where `lf` has `sought`, only the first places unless `every`."""
        spans: list[tuple[int, int]] = []
        at = self.lf.find(sought) if sought else -1
        while at >= 0 and (every or len(spans) <= refusals.LISTED):
            spans.append((at, at + len(sought)))
            at = self.lf.find(sought, at + (len(sought) if every else 1))
        return spans

    def found(self, keys: Sequence[str], *, whole: bool) -> list[int]:
        """Return the places (as indexes of `rows`) where lines with these keys follow one another.

        With `whole`, the first and the last key are whole lines, not the end and the start of one.
        """
        edge = "\n" if whole else ""
        sought = edge + "\n".join(keys) + edge
        cost = _LINE * len(keys) + len(sought)
        places: dict[int, None] = {}
        at = self._hay.find(sought)
        while at >= 0:
            places[bisect_right(self._starts, at + len(edge)) - 1] = None
            if len(places) > 8 and len(places) * cost > _BUDGET:
                raise refusals.ambiguous(self.lines, [self.rows[place] for place in list(places)[:2]], more=True)
            at = self._hay.find(sought, at + 1)
        return list(places)

    def pair(self, row: int, want: str) -> tuple[int, str, str] | None:
        """Compare a line of the file with one of the search: see `bridges.compare`."""
        key = (self.lines[row], want, self.states[row])
        if key not in self._memo:
            self._memo[key] = compare(*key)
        return self._memo[key]


def whole_places(text: EditText, chunks: DottedChunks) -> list[EditPlace]:
    """Return the places where the chunks are whole lines, one after the other, with other lines between them."""
    keys = [filled_keys(chunk) for chunk in chunks.search]
    if not all(keys):
        return []
    placements: list[list[int]] = [[]]
    for number, chunk in enumerate(keys):
        size = len(keys[number - 1]) + 1
        starts = text.found(chunk, whole=True)
        placements = [[*done, start] for done in placements for start in starts if not done or start >= done[-1] + size]
        if number and len(placements) > _PLACEMENTS:
            raise refusals.ambiguous(text.lines, [text.rows[each[0]] for each in placements[:2]], more=True)
    fresh = [line for chunk in chunks.replace for line in chunk]
    found = (_whole(text, chunks.search, placement, fresh) for placement in placements)
    return [place for place in found if place is not None]


def _whole(
    text: EditText, chunks: Sequence[list[str]], starts: Sequence[int], fresh: Sequence[str]
) -> EditPlace | None:
    bits = 0
    indents: list[tuple[str, str]] = []
    own: list[list[int | None]] = []
    for chunk, start in zip(chunks, starts, strict=True):
        rows, needed = _aligned(text, chunk, start)
        bits |= needed
        for row, want in zip(rows, chunk, strict=True):
            if row is None or not want.strip():
                continue
            compared = text.pair(row, want)
            if compared is None:
                return None
            bits |= compared[0]
            indents.append(compared[1:])
        own.append(rows)
    related = relate(indents, fresh)
    return None if related is None else EditPlace(bits | related[0], text.rows[starts[0]], own, related[1])


def _aligned(text: EditText, lines: Sequence[str], start: int) -> tuple[list[int | None], int]:
    """Return the file's row for each line of a search that is found at `start`, and BLANKS where blank lines differ.

    Blank lines are paired in order after the line before them, those before the first line upwards from it.
    """
    own: list[int | None] = [None] * len(lines)
    filled = [at for at, line in enumerate(lines) if line.strip()]
    rows = text.rows[start : start + len(filled)]
    extra = False
    for number, (at, row) in enumerate(zip(filled, rows, strict=True)):
        own[at] = row
        stop = filled[number + 1] if number + 1 < len(filled) else len(lines)
        extra |= number + 1 < len(filled) and rows[number + 1] - row != stop - at
        for blank in range(at + 1, stop):
            if not _is_blank(text, row + blank - at):
                break
            own[blank] = row + blank - at
    for blank in range(filled[0] - 1, -1, -1):
        if not _is_blank(text, rows[0] + blank - filled[0]):
            break
        own[blank] = rows[0] + blank - filled[0]
    return own, BLANKS if extra or None in own else 0


def _is_blank(text: EditText, row: int) -> bool:
    return 0 <= row < len(text.lines) and not text.lines[row].strip()


def inside_places(text: EditText, form: Form) -> list[EditPlace]:
    """Return the places where a search starts or ends inside a line, at the edges of words."""
    lines, closed = block_lines(form.search)
    fresh, _ = block_lines(form.replace)
    if not lines or not lines[0].strip() or not lines[-1].strip() or lines[0] != lines[0].lstrip():
        return []
    wanted = [line.strip(" \t") for line in lines if line.strip()]
    between = r"[^\S\n]*\n(?:[^\S\n]*\n)*[^\S\n]*"
    end = r"(?=[^\S\n]*(?:\n|\Z))" if closed else ""
    pattern = re.compile(between.join(f"({loose_pattern(line)})" for line in wanted) + end)
    chunks = DottedChunks([lines], [fresh or [""]])
    places = list[EditPlace]()
    for start in text.found(filled_keys(lines), whole=False):
        first, last = text.rows[start], text.rows[start + len(wanted) - 1]
        for match in pattern.finditer(text.lf, text.offsets[first], text.offsets[last] + len(text.lines[last])):
            if len(places) > _PLACEMENTS:
                raise refusals.ambiguous(text.lines, [place.row for place in places[:2]], more=True)
            place = _inside(text, chunks, match, start, closed=closed)
            if place is not None:
                places.append(place)
    return places


def _inside(text: EditText, chunks: DottedChunks, match: re.Match[str], at: int, *, closed: bool) -> EditPlace | None:
    """Return the place of a match, if bridges suffice for it; the lines after the first need no other indentation."""
    start, stop = match.span()
    if not _edge(text.lf[start], text.lf[max(start - 2, 0) : start][::-1]):
        return None
    if not _edge(text.lf[stop - 1], text.lf[stop : stop + 2]):
        return None
    lines = chunks.search[0]
    own, bits = _aligned(text, lines, at)
    filled = [(row, line) for row, line in zip(own, lines, strict=True) if row is not None and line.strip()]
    for group, (row, line) in enumerate(filled, 1):
        begin, end = (column - text.offsets[row] for column in match.span(group))
        needed = agree(text.lines[row], begin, end, line.strip(" \t"), text.states[row])
        if needed is None or (group > 1 and indent_of(line) != indent_of(text.lines[row])):
            return None
        ends = group < len(filled) or closed
        bits |= needed | (TRAIL if ends and text.lines[row][end:] != line[len(line.rstrip()) :] else 0)
    first, last = filled[0][0], filled[-1][0]
    column = len(text.lines[last]) if closed else stop - text.offsets[last]
    return EditPlace(bits | INSIDE, first, [own], Indent(), start - text.offsets[first], column, chunks)


def _edge(inner: str, outer: str) -> bool:
    """Return whether a match may end with `inner` where the line continues with `outer`, going outwards."""
    if not outer or inner in _FREE or outer[0] in _FREE or outer[0] == "\u00a0":
        return True
    if outer[0] in _QUOTES or (inner in _QUOTES and not outer[0].isalnum() and outer[0] != "_"):
        return True
    return outer[0] in _STOPS and (len(outer) == 1 or outer[1] in " \t\n\u00a0" or outer[1] in _QUOTES)


def forms(search: str, replace: str) -> Iterator[Form]:
    """Yield all readings of a search and its replacement, the literal one first."""
    literal = Form(search, replace)
    plain = [form for form in (literal, _without_numbers(literal)) if form is not None]
    unescaped = [each for form in plain for each in _unescaped(form)]
    bare = [_without_numbers(form) for form in unescaped if not form.mark]
    seen: set[tuple[str, str]] = set()
    for form in (*plain, *unescaped, *bare):
        if form is not None and form.search and (form.search, form.mark) not in seen:
            seen.add((form.search, form.mark))
            yield form


def filled_keys(lines: Sequence[str]) -> list[str]:
    """Return loose keys of the lines of a search that are not blank."""
    return [key for key in loose_keys("\n".join(lines)) if key]


def block_lines(text: str) -> tuple[list[str], bool]:
    """Return the lines of a search or a replacement, and whether a line end closes the last one.

    A last piece of nothing but blanks is the start of the following line, copied along: it is left out.
    """
    lines = text.split("\n")
    if len(lines) > 1 and not lines[-1].strip():
        return lines[:-1], True
    return ([], True) if lines == [""] else (lines, False)


def one_chunk(form: Form) -> DottedChunks:
    lines, closed = block_lines(form.search)
    fresh, _ = block_lines(form.replace)
    return DottedChunks([lines], [fresh if fresh or closed else [""]])  # a line without its end leaves an empty line


def divided(form: Form) -> DottedChunks | None:
    """Return the chunks between `...` lines; None without such lines, or where they are not paired."""
    chunks, new = _split(block_lines(form.search)[0]), _split(block_lines(form.replace)[0])
    if len(chunks) < 2 or len(chunks) != len(new):
        return None
    for edge in (0, -1):
        if len(chunks) > 1 and not _filled(chunks[edge]):
            if _filled(new[edge]):
                return None
            del chunks[edge], new[edge]
    return DottedChunks(chunks, new) if all(_filled(chunk) for chunk in chunks) else None


def looks_numbered(lines: Sequence[str], form: Form) -> bool:
    """Return whether the file itself has such numbers before the search's lines: then they are text, not a tool's."""
    sought = {line.strip() for line in form.search.split("\n") if line.strip()}
    found = (_NUMBERED.match(line) for line in lines)
    return any(each is not None and each[2].strip(" ") == form.mark and each[3].strip() in sought for each in found)


def _without_numbers(form: Form) -> Form | None:
    lines = form.search.split("\n")
    found = [_NUMBERED.match(line) for line in lines if line.strip()]
    marks = {each[2] if each is not None else "" for each in found}
    if len(marks) != 1 or "" in marks:
        return None
    mark = marks.pop()
    numbers = [int(each[1]) for each in found if each is not None]
    if any(after <= before for before, after in pairwise(numbers)):
        return None
    bodies = [each[3] for each in found if each is not None]
    blank = mark in {":", "|", " |", "│", " │"} and all(body[:1] == " " for body in bodies if body.strip())

    def bare(text: str) -> str:
        matches = ((line, _NUMBERED.match(line)) for line in text.split("\n"))
        return "\n".join(
            line if match is None or match[2] != mark else match[3].removeprefix(" ") if blank else match[3]
            for line, match in matches
        )

    return Form(bare(form.search), bare(form.replace), mark.strip(" "))


def _unescaped(form: Form) -> Iterator[Form]:
    """Yield the form with escapes undone: all kinds, then some only.

    Where two readings differ only in the replacement, one that breaks a string over two lines is not taken.
    """
    if "\\" not in form.search:
        return
    readings: dict[str, list[str]] = {}
    for kinds in _KINDS:
        search = _unescape(form.search, kinds)
        if search != form.search:
            readings.setdefault(search, []).append(_unescape(form.replace, kinds))
    for search, replaces in readings.items():
        yield Form(search, next((each for each in replaces if not unclosed(each)), replaces[0]), form.mark)


def _unescape(text: str, kinds: str) -> str:
    def plain(found: re.Match[str]) -> str:
        letter = found[1]
        kind = "b" if letter == "\\" else "q" if letter in "\"'" else "n"
        return _PLAIN.get(letter, letter) if kind in kinds else found[0]

    return _ESCAPE.sub(plain, text)


def _split(lines: Sequence[str]) -> list[list[str]]:
    chunks: list[list[str]] = [[]]
    for line in lines:
        if line.strip() in _DOTS:
            chunks.append([])
        else:
            chunks[-1].append(line)
    return chunks


def _filled(chunk: Sequence[str]) -> bool:
    return any(line.strip() for line in chunk)
