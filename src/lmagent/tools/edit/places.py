"""Finds the places of a file that a search may mean, and the bridges that each of them needs.

First all places are found that some bridge could reach (equal loose keys); then each is compared strictly.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import accumulate

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
    loose_map,
    relate,
)
from lmagent.tools.edit.forms import DottedChunks, Form, block_lines

_BUDGET = 5_000_000  # characters compared; a search that fits more of a file than that is ambiguous
_LINE = 50  # characters that comparing a line costs besides its own
_PLACEMENTS = 200
_FREE = frozenset(" \t\n()[]{},;")
_QUOTES = frozenset("\"'`“”‘’«»")
_STOPS = frozenset(".,:;!?…")


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

    Args:
        body: the text with its own line ends. A lone carriage return ends a line only where the text has no line feed.
        dashes: the file or the search has typographic dashes.
    """

    def __init__(self, body: str, *, dashes: bool) -> None:
        self.body = body
        self.dashes = dashes
        self._old_mac = "\r" in body and "\n" not in body
        self.lf = self.to_lf(body)
        self.lines = self.lf.split("\n")
        if not self.lines[-1]:
            self.lines.pop()
        self._memo: dict[tuple[str, str], tuple[int, str, str] | None] = {}

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
        return loose_keys("\n".join(self.lines), dashes=self.dashes)

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

    def keys_of(self, lines: Sequence[str]) -> list[str]:
        """Return loose keys of the lines of a search that are not blank."""
        return [key for key in loose_keys("\n".join(lines), dashes=self.dashes) if key]

    def indent_before(self, position: int) -> str:
        """Return the indentation that ends at `position` of `lf`; '' if other text is before it in its line."""
        before = self.lf[self.lf.rfind("\n", 0, position) + 1 : position]
        return "" if before.strip(" \t") else before

    def spans(self, sought: str, raw: str, *, every: bool) -> list[tuple[int, int]]:
        """Return where `lf` has `sought`, only the first places unless `every`; with mixed ends `raw` is preferred."""
        spans: list[tuple[int, int]] = []
        mixed = len(self.kinds) > 1
        at = self.lf.find(sought) if sought else -1
        while at >= 0 and (every or mixed or len(spans) <= refusals.LISTED):
            spans.append((at, at + len(sought)))
            at = self.lf.find(sought, at + (len(sought) if every else 1))
        if not mixed:
            return spans
        shift = list(accumulate((len(end) - 1 for end in self.ends), initial=0))

        def original(position: int) -> int:
            return position + shift[bisect_right(self.offsets, position) - 1]

        exact = [(start, stop) for start, stop in spans if self.body[original(start) : original(stop)] == raw]
        return exact or spans

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
        key = (self.lines[row], want)
        if key in self._memo:
            return self._memo[key]
        asked: list[int] = []

        def state() -> str:
            asked.append(row)
            return self.states[row]

        found = compare(*key, state)
        if not asked:
            self._memo[key] = found
        return found


def whole_places(text: EditText, chunks: DottedChunks) -> list[EditPlace]:
    """Return the places where the chunks are whole lines, one after the other, with other lines between them."""
    keys = [text.keys_of(chunk) for chunk in chunks.search]
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
    """Return the places where a search starts or ends inside a line."""
    lines, closed = block_lines(form.search)
    fresh, _ = block_lines(form.replace)
    edges = _without_shared_edges(lines, fresh or [""], closed=closed) if lines else None
    if edges is None:
        return []
    lines, fresh = edges
    if not lines[0].strip() or not lines[-1].strip():
        return []
    starts = text.found(text.keys_of(lines), whole=False)
    chunks = DottedChunks([lines], [fresh])
    return [
        EditPlace(bits | INSIDE, text.rows[start], [own], Indent(), begin, stop, chunks)
        for start in starts
        for bits, own, begin, stop in _inside(text, lines, start, closed=closed)
    ]


def _without_shared_edges(
    lines: Sequence[str], fresh: Sequence[str], *, closed: bool
) -> tuple[list[str], list[str]] | None:
    """Return search and replacement without the blanks that both start and (unless `closed`) end with.

    None where only the search has them: then it is not plain what should become of the file's blanks.
    """
    lines, fresh = list(lines), list(fresh)
    lead = lines[0][: len(lines[0]) - len(lines[0].lstrip())]
    tail = "" if closed else lines[-1][len(lines[-1].rstrip()) :]
    if not fresh[0].startswith(lead) or not fresh[-1].endswith(tail):
        return None
    lines[0], fresh[0] = lines[0][len(lead) :], fresh[0][len(lead) :]
    lines[-1], fresh[-1] = lines[-1].removesuffix(tail), fresh[-1].removesuffix(tail)
    return lines, fresh


def _inside(
    text: EditText, lines: Sequence[str], start: int, *, closed: bool
) -> Iterator[tuple[int, list[int | None], int, int]]:
    """Yield bridges, rows, first and last column of each place at `start`."""
    first = text.rows[start]
    ends = [len(text.lines[first].rstrip())]
    if len(lines) == 1:
        sought = lines[0].rstrip() if closed else lines[0]
        for bits, begin, end in _stretches(text, first, sought):
            if not closed or end == ends[0]:
                stop = len(text.lines[first]) if closed else end
                yield bits | (TRAIL if stop != end else 0), [first], begin, stop
        return
    own, bits = _aligned(text, lines, start)
    pairs = [(row, line) for row, line in zip(own, lines, strict=True) if row is not None and line.strip()]
    for row, line in pairs[1 : None if closed else -1]:
        compared = text.pair(row, line)
        if compared is None or compared[1] != compared[2]:
            return
        bits |= compared[0]
    sought = lines[0].rstrip()
    head = [each for each in _stretches(text, first, sought) if each[2] == ends[0]]
    last, want = pairs[-1]
    tail = [(0, 0, len(text.lines[last]))]
    if not closed:
        indent = indent_of(text.lines[last])
        if indent_of(want) != indent:
            return
        tail = [each for each in _stretches(text, last, want[len(indent) :]) if each[1] == len(indent)]
    if head and tail:
        trailing = text.lines[first][ends[0] :] != lines[0][len(sought) :]
        yield bits | head[0][0] | tail[0][0] | (TRAIL if trailing else 0), own, head[0][1], tail[0][2]


def _stretches(text: EditText, row: int, want: str) -> Iterator[tuple[int, int, int]]:
    """Yield the bridges needed and the columns between which the line reads `want`, at the edges of words."""
    line = text.lines[row]
    loose, origin = loose_map(line, dashes=text.dashes)
    sought, _ = loose_map(want, dashes=text.dashes)
    left = max(_BUDGET // (len(line) + 1), 8)
    at = loose.find(sought)
    while at >= 0:
        begin, end = origin[at], origin[at + len(sought)]
        before, after = line[max(begin - 2, 0) : max(begin, 0)][::-1], line[end : end + 2]
        if begin >= 0 and end >= 0 and _edge(line[begin], before) and _edge(line[end - 1], after):
            left -= 1
            if left < 0:
                raise refusals.ambiguous(text.lines, [row], more=True)
            bits = agree(line, begin, end, want, lambda: text.states[row])
            if bits is not None:
                yield bits, begin, end
        at = loose.find(sought, at + 1)


def _edge(inner: str, outer: str) -> bool:
    """Return whether a match may end with `inner` where the line continues with `outer`, going outwards."""
    if not outer or inner in _FREE or outer[0] in _FREE or outer[0] == "\u00a0":
        return True
    if outer[0] in _QUOTES or (inner in _QUOTES and not outer[0].isalnum() and outer[0] != "_"):
        return True
    return outer[0] in _STOPS and (len(outer) == 1 or outer[1] in " \t\n\u00a0" or outer[1] in _QUOTES)
