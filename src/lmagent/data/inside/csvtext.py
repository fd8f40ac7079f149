"""CSV: the dialect is detected, and rows are counted in blocks, most of which need no parser."""

from __future__ import annotations

import csv
import io
import os
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any

from .table import Row, Table
from .textfile import LONGEST, TextFile
from .values import DataError, type_of_text, unique

DELIMITERS = (",", ";", "\t", "|", ":")
_NAMES = {",": "comma", ";": "semicolon", "\t": "tab", "|": "pipe", ":": "colon"}
_JUDGED = 200
"""Rows by which the dialect is detected."""

_TAIL = 1 << 20
"""Bytes at the end of a file in which its last rows are looked for."""

_JUDGED_BYTES = 256 << 20
_STARTS = 20
_YEARS = range(1000, 3000)


class CsvTable(Table):
    """A CSV file; `query` has no meaning for it."""

    def __init__(self, file: TextFile, name: str) -> None:
        super().__init__()
        csv.field_size_limit(LONGEST)
        self.file = file
        whole = file.sample if file.is_whole else file.sample[: file.sample.rfind("\n") + 1]
        text = whole or file.sample
        self.quote = _quote(text)
        self.escape = "\\" if '\\"' in text and '""' not in text else None
        self.delimiter, rows = self._dialect(text, name)
        if not rows:
            raise DataError("it is empty: it has no row")
        self.has_header = _is_header(rows)
        first = rows[0]
        if not self.has_header:
            self.notes.append("it has no line of names, so the columns are numbered")
        self.names = unique(first if self.has_header else [""] * len(first))
        self.kind = f"CSV ({_NAMES[self.delimiter]}, {file.encoding})"
        self._clear()

    @property
    def options(self) -> dict[str, Any]:
        return {
            "delimiter": self.delimiter,
            "quotechar": self.quote,
            "escapechar": self.escape,
            "doublequote": self.escape is None,
        }

    def rows(self) -> Iterator[Row]:
        width = len(self.names)
        for row in self._parsed(self._lines()):
            if len(row) != width:
                row = (row + [""] * width)[:width]
            yield [value if value != "" else None for value in row]

    def judge(self, value: Any) -> str:
        return type_of_text(value)

    def count(self) -> int:
        """Return the number of rows; blocks without quotes are not parsed."""
        self._clear()
        self.reached = -self.has_header
        width = len(self.names)
        # In a larger file, the search for rows of another length would take a third of the time.
        judged = os.path.getsize(self.file.path) < _JUDGED_BYTES

        def lines() -> Iterator[str]:
            for block in self.file.blocks():
                if self._between and self._is_plain(block):
                    rows = block.count("\n") + (not block.endswith("\n"))
                    if not judged or block.count(self.delimiter) == rows * (width - 1):
                        self.reached += rows
                        self._line += rows
                        continue
                yield from self._fed(block)
            self._end()

        for _ in self._parsed(lines(), header=True):
            self.reached += 1
        return self.reached

    def tail(self, number: int) -> list[Row]:
        """Return the last rows, from the end of the file if that can be understood by itself."""
        size = os.path.getsize(self.file.path)
        if size > 4 * _TAIL and self.file.codec in ("utf-8", "cp1252", "latin-1") and not self.file.is_old_mac:
            with open(self.file.path, "rb") as file:
                file.seek(size - _TAIL)
                text = file.read(_TAIL).decode(self.file.codec, "replace")
            for start in _line_starts(text):
                rows = self._consistent(text[start:])
                if len(rows) >= number:
                    return [[value if value != "" else None for value in row] for row in rows[-number:]]
        return super().tail(number)

    def _consistent(self, text: str) -> list[list[str]]:
        """Return the rows of a part of the file; none if a row is not as it should be.

        Read from the middle of a quoted cell, hundreds of rows would not all have the right cells.
        """
        try:
            reader = csv.reader(io.StringIO(text, newline="\n"), strict=True, **self.options)
            rows = [row for row in reader if row]
        except csv.Error:
            return []
        return rows if all(len(row) == len(self.names) for row in rows) else []

    def remarks(self) -> list[str]:
        found = [*self.notes, *self.file.remarks()]
        if self._odd:
            where = f", first line {self._first_odd}" if self._first_odd else ""
            rows = "row has" if self._odd == 1 else "rows have"
            found.append(
                f"{self._odd:,} of the rows read {rows} another number of cells than {len(self.names)}{where}: "
                "missing cells are NULL, further cells are left out"
            )
        if self._unclosed:
            found.append(f"line {self._unclosed}: a quote opens there and never closes, so the rest is one cell")
        return found

    @property
    def is_ragged(self) -> bool:
        """Whether a row of the last pass had another number of cells than the columns."""
        return self._odd > 0

    def _clear(self) -> None:
        self._between, self._line, self._row_line = True, 0, 0
        self._odd, self._first_odd, self._unclosed = 0, 0, 0

    def _lines(self) -> Iterator[str]:
        self._clear()
        for block in self.file.blocks():
            yield from self._fed(block)
        self._end()

    def _fed(self, block: str) -> Iterator[str]:
        """Return the lines of a block; the parser's next call tells whether a row has ended."""
        for line in io.StringIO(block, newline="\n"):
            self._line += 1
            if self._between:
                self._row_line, self._between = self._line, False
            yield line

    def _end(self) -> None:
        if not self._between:
            self._unclosed = self._row_line

    def _parsed(self, lines: Iterator[str], *, header: bool = False) -> Iterator[list[str]]:
        """Return the rows of the parser without empty lines, and without the header unless it is asked for."""
        skip = self.has_header and not header
        reader = self._reader(lines)
        width = len(self.names)
        while True:
            try:
                row = next(reader, None)
            except csv.Error as error:
                raise DataError(f"line {self._row_line}: {_why(error)}") from None
            if row is None:
                return
            self._between = True
            if not row:
                continue
            if len(row) != width:
                self._odd += 1
                self._first_odd = self._first_odd or self._row_line
            if skip:
                skip = False
                continue
            yield row

    def _reader(self, lines: Any) -> Any:
        return csv.reader(lines, **self.options)

    def _is_plain(self, block: str) -> bool:
        """Whether each line of a block is one row: no quotes, no empty lines, no lone carriage return."""
        if self.quote in block or (self.escape and self.escape in block):
            return False
        if "\n\n" in block or block.startswith(("\n", "\r")):
            return False
        return "\r" not in block or ("\r\n\r" not in block and block.count("\r") == block.count("\r\n"))

    def _dialect(self, text: str, name: str) -> tuple[str, list[list[str]]]:
        """Return the delimiter that cuts the most rows into the same number of cells, and these rows."""
        best: tuple[float, int, str, list[list[str]]] = (0.0, 1, ",", [])
        tabs, fault = name.lower().endswith((".tsv", ".tab")), ""
        for delimiter in ("\t",) if tabs else DELIMITERS:
            self.delimiter = delimiter
            reader = self._reader(io.StringIO(text, newline="\n"))
            try:
                rows = [row for row in islice(reader, _JUDGED) if row]
            except csv.Error as error:
                fault = fault or f"line {reader.line_num}: {_why(error)}"
                continue
            if not rows:
                continue
            width, number = Counter(map(len, rows)).most_common(1)[0]
            share = round(number / len(rows), 1)
            if not best[3] or (width > 1 and (best[1] == 1 or (share, width) > best[:2])):
                best = (share, width, delimiter, rows)
        if fault and not best[3]:
            raise DataError(fault)
        return best[2], best[3]


def _line_starts(text: str) -> Iterator[int]:
    """Return the places of the first lines in a text that begins anywhere."""
    at = 0
    for _ in range(_STARTS):
        at = text.find("\n", at) + 1
        if not at:
            return
        yield at


def _quote(text: str) -> str:
    """Return the character around cells: an apostrophe only if no quotation mark is used, and cells begin with it."""
    if '"' in text or "'" not in text:
        return '"'
    cells = [
        cell for line in text.split("\n")[:_JUDGED] for cell in line.replace(";", ",").replace("\t", ",").split(",")
    ]
    return "'" if sum(cell.strip()[:1] == "'" == cell.strip()[-1:] for cell in cells) > 2 else '"'


def _is_header(rows: list[list[str]]) -> bool:
    """Return whether the first row holds names: text only, or text and years in a row."""
    first = [cell for cell in rows[0] if cell.strip()]
    values = [cell for cell in first if type_of_text(cell) != "text"]
    if not values:
        return bool(first)
    years = [int(cell) for cell in values if cell.isdigit() and int(cell) in _YEARS]
    return len(years) == len(values) >= 2 and years == sorted(set(years))


def _why(error: csv.Error) -> str:
    text = str(error)
    if "field limit" in text:
        return "a quote opens there and does not close within 16 million characters"
    if "new-line character" in text:
        return "a carriage return is in the middle of a line"
    return text
