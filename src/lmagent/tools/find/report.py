"""grep's results, by file: its path on a line, then `12:text` for each hit and `13-text` for lines around it.

The text begins right after the sign, so that its indentation can be copied.
"""

from __future__ import annotations

from msgspec import Struct

from lmagent.tools.find.matching import Hit, Hits
from lmagent.tools.page import BYTES, LINES, size
from lmagent.tools.sanitize import one_line, printable

WIDTH = 240
"""Characters of a line that are shown, around the hit."""


class Piece(Struct, frozen=True):
    """A hit with the lines around it that were not shown before.

    `alone` is the line of the hit, `hits` the number of lines that are hits; `gap` if lines before it are left out.
    """

    name: str
    rows: list[str]
    alone: str
    hits: int
    gap: bool


class Report:
    """Collects hits, with `context` lines around each, until a page is certainly full, then only counts."""

    def __init__(self, context: int) -> None:
        self.total = self.files = 0
        self._context = context
        self._pieces = list[Piece]()
        self._size = self._lines = 0

    def add(self, path: str, text: str, hits: Hits) -> None:
        self.total += hits.total
        self.files += 1
        if self._size > BYTES or self._lines > LINES:
            return
        lines = text.split("\n")
        if lines and not lines[-1]:
            lines.pop()
        name = one_line(path, 1000)
        by_line = {hit.line: hit for hit in hits.hits}
        done = 0  # the last line of the file that is in the report
        for hit in hits.hits:
            first, last = max(done + 1, hit.line - self._context), min(len(lines), hit.line + self._context)
            if first > last:
                continue
            rows = [_row(at, lines[at - 1], by_line.get(at)) for at in range(first, last + 1)]
            alone = _row(hit.line, lines[hit.line - 1], hit)
            hit_count = sum(at in by_line for at in range(first, last + 1))
            gap = bool(self._context and done and first > done + 1)
            self._pieces.append(Piece(name, rows, alone, hit_count, gap))
            self._size += size(rows)
            self._lines += len(rows)
            done = last

    def page(self, room: int) -> tuple[str, int]:
        """Return the first pieces that fit, and the number of hits in them."""
        rows, used, shown, name = list[str](), 0, 0, ""
        for piece in self._pieces:
            before = ([""] if rows else []) + [piece.name] if piece.name != name else ["--"] * piece.gap
            new = [*before, *piece.rows]
            if used + size(new) > room or len(rows) + len(new) > LINES:
                if not rows:  # its surroundings are too long: show the hit alone
                    return "\n".join([piece.name, _within(piece.alone, room - size([piece.name]))]), 1
                break
            rows += new
            used += size(new)
            shown += piece.hits
            name = piece.name
        return "\n".join(rows), shown


def _row(number: int, line: str, hit: Hit | None) -> str:
    return f"{number}{'-' if hit is None else ':'}{_trimmed(line.removesuffix(chr(13)), hit)}"


def _trimmed(line: str, hit: Hit | None) -> str:
    room = max(0, len(line) - WIDTH)
    start = 0 if hit is None or hit.end <= WIDTH else max(0, min(hit.start - WIDTH // 3, room))
    piece = printable(line[start : start + WIDTH]).replace("\n", " ")
    return f"{'…' if start else ''}{piece}{'…' if start < room else ''}"


def _within(row: str, room: int) -> str:
    raw = row.encode("utf-8", "replace")
    return row if len(raw) <= room else f"{raw[: max(40, room - 4)].decode('utf-8', 'ignore')}…"
