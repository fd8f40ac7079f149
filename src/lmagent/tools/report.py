"""What grep found, as lines for the model: `path:line: text`, context as `path-line- text`, within a page."""

from __future__ import annotations

from lmagent.tools.matching import Hit, Hits
from lmagent.tools.sanitize import one_line, printable

PAGE = 7500
"""Bytes that are shown: with head and notes it stays under the cap on results (2,000 tokens of 4 bytes)."""

WIDTH = 240
"""Characters of a line that are shown, around the hit."""


class Report:
    """Collects rows until the page is full, and counts on.

    Args:
        context: lines shown around a hit.

    Attributes:
        total: lines with a hit.
        shown: of them in the report.
        files: files with a hit.
        full: whether something was left out.
    """

    def __init__(self, context: int) -> None:
        self.total = self.shown = self.files = 0
        self.full = False
        self._context = context
        self._rows = list[str]()
        self._size = 0

    def add(self, path: str, text: str, hits: Hits) -> None:
        """Add the hits of one file."""
        self.total += hits.total
        self.files += 1
        if self.full:
            return
        lines = text.split("\n")
        if lines and not lines[-1]:
            lines.pop()
        name, shown = one_line(path, 1000), self.shown
        by_line = {hit.line: hit for hit in hits.hits}
        done = 0  # the last line of the file that is in the report
        for hit in hits.hits:
            first, last = max(done + 1, hit.line - self._context), min(len(lines), hit.line + self._context)
            rows = ["--"] if self._context and self._rows and (first > done + 1 or not done) else []
            rows += [_row(name, at, lines[at - 1], by_line.get(at)) for at in range(first, last + 1)]
            size = _size(rows)
            if size > PAGE:  # long lines: the hit alone, then
                rows, last = [_row(name, hit.line, lines[hit.line - 1], hit)], hit.line
                size = _size(rows)
            if self._size + size > PAGE:
                break
            self._rows += rows
            self._size += size
            done = max(done, last)
        self.shown += sum(hit.line <= done for hit in hits.hits)
        self.full = self.shown - shown < hits.total

    def text(self) -> str:
        """The rows."""
        return "\n".join(self._rows)


def _row(name: str, number: int, line: str, hit: Hit | None) -> str:
    mark = "-" if hit is None else ":"
    return f"{name}{mark}{number}{mark} {_trimmed(line.removesuffix(chr(13)), hit)}"


def _trimmed(line: str, hit: Hit | None) -> str:
    room = max(0, len(line) - WIDTH)
    start = 0 if hit is None else max(0, min(hit.start - WIDTH // 3, room))
    piece = printable(line[start : start + WIDTH]).replace("\n", " ")
    return f"{'…' if start else ''}{piece}{'…' if start < room else ''}"


def _size(rows: list[str]) -> int:
    return sum(len(row.encode("utf-8")) + 1 for row in rows)
