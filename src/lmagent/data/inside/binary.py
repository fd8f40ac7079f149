"""SQLite, Excel, Parquet and Arrow: tables whose formats declare their types."""

from __future__ import annotations

import sqlite3
import zipfile
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import islice
from typing import Any
from urllib.parse import quote

from .table import Row, Table
from .values import DataError, TimeLimit, TimeUp, unique

UNPACKED = 512 << 20
"""Bytes that an Excel file may unpack to."""

_PIECE = 1000


def needed(library: str, what: str) -> Any:
    """Import a library of the extra. Raise DataError with what to type if it is missing."""
    from importlib import import_module

    try:
        return import_module(library)
    except ImportError:
        raise DataError(f"{what} needs a library that is not installed: pip install 'lmagent-local[data]'") from None


def one_line(error: BaseException) -> str:
    """Return the first line of a library's error."""
    return " ".join(str(error).split("\n\n")[0].split())[:400] or type(error).__name__


def choose(what: str, names: Sequence[str], wanted: str) -> str:
    """Return the table or sheet that is wanted, or the only one. Raise DataError, which lists them."""
    for name in names:
        if wanted and name.lower() == wanted.lower():
            return name
    if not wanted and len(names) == 1:
        return names[0]
    listed = ", ".join(names[:50]) + (f" and {len(names) - 50} more" if len(names) > 50 else "")
    if not names:
        raise DataError(f"it has no {what}")
    if wanted:
        raise DataError(f"it has no {what} {wanted[:80]!r}. It has: {listed}")
    raise DataError(f"it has {len(names)} {what}s: {listed}. Name one as query")


# --- SQLite ---------------------------------------------------------------------------------------------------------

_READING = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, 33}  # 33: recursive


def open_sqlite(path: str, limit: TimeLimit) -> sqlite3.Connection:
    """Return a connection that only reads this file. A query that takes too long is interrupted."""
    # `immutable`: no journal is looked for, since the worker sees only the file itself.
    connection = sqlite3.connect(f"file:{quote(path)}?mode=ro&immutable=1", uri=True)
    connection.text_factory = _decoded

    def tick() -> int:
        try:
            limit.check()
        except Exception:  # noqa: BLE001  no exception leaves a callback
            return 1
        return 0

    connection.set_progress_handler(tick, 100_000)
    connection.execute("PRAGMA trusted_schema=OFF")
    connection.set_authorizer(only_reads)
    return connection


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def only_reads(action: int, *_: Any) -> int:
    """Allow what a SELECT does, and nothing else."""
    return sqlite3.SQLITE_OK if action in _READING else sqlite3.SQLITE_DENY


@contextmanager
def sqlite_errors() -> Generator[None]:
    """Turn SQLite's errors into those of this package."""
    try:
        yield
    except sqlite3.Error as error:
        raise TimeUp if "interrupted" in str(error) else DataError(f"it cannot be read as SQLite: {error}") from None


def sqlite_tables(connection: sqlite3.Connection) -> list[str]:
    rows = connection.execute(
        "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND substr(name, 1, 7) <> 'sqlite_' ORDER BY 1"
    )
    return [name for (name,) in rows]


class SqliteTable(Table):
    """One table or view of a SQLite file."""

    def __init__(self, path: str, wanted: str, limit: TimeLimit) -> None:
        super().__init__()
        self._path, self._limit = path, limit
        with sqlite_errors(), self._open() as connection:
            self.name = choose("table", sqlite_tables(connection), wanted)
            self._from = '"' + self.name.replace('"', '""') + '"'
            cursor = connection.execute(f"SELECT * FROM {self._from} LIMIT 0")
            self.names = unique(column[0] for column in cursor.description)
        self.kind = f"SQLite, table {self.name}"

    def rows(self) -> Iterator[Row]:
        yield from self._select("")

    def count(self) -> int:
        with sqlite_errors(), self._open() as connection:
            return connection.execute(f"SELECT count(*) FROM {self._from}").fetchone()[0]

    def tail(self, number: int) -> list[Row]:
        return list(self._select(f" LIMIT {number} OFFSET {max(0, self.count() - number)}"))

    def _select(self, rest: str) -> Iterator[Row]:
        with sqlite_errors(), self._open() as connection:
            yield from map(list, connection.execute(f"SELECT * FROM {self._from}{rest}"))

    def _open(self) -> Any:
        return closing(open_sqlite(self._path, self._limit))


# --- Excel ----------------------------------------------------------------------------------------------------------


class Workbook:
    """An Excel or OpenDocument file; formulas are shown with the values that were saved with them."""

    def __init__(self, path: str) -> None:
        calamine = needed("python_calamine", "Excel")
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                size = sum(entry.file_size for entry in archive.infolist())
            if size > UNPACKED:
                raise DataError(f"it unpacks to {size >> 20:,} MB, and {UNPACKED >> 20} MB are allowed")
        try:
            self._book = calamine.CalamineWorkbook.from_path(path)
        except Exception as error:  # noqa: BLE001  the library's errors have no common type
            raise DataError(f"it cannot be read as a workbook: {one_line(error)}") from None
        self.sheets: list[str] = list(self._book.sheet_names)

    def sheet(self, name: str) -> SheetTable:
        try:
            return SheetTable(self._book.get_sheet_by_name(name), name)
        except DataError:
            raise
        except Exception as error:  # noqa: BLE001
            raise DataError(f"its sheet {name} cannot be read: {one_line(error)}") from None


class SheetTable(Table):
    """One sheet: its first row that is not empty holds the names."""

    def __init__(self, sheet: Any, name: str) -> None:
        super().__init__()
        self._sheet, self.name = sheet, name
        self.kind = f"Excel, sheet {name}"
        header = next(self._filled(), None)
        if header is None:
            raise DataError(f"its sheet {name} is empty")
        while header and header[-1] is None:
            header.pop()
        self.names = unique(header)

    def rows(self) -> Iterator[Row]:
        width = len(self.names)
        for row in islice(self._filled(), 1, None):
            yield (row + [None] * width)[:width]

    def _filled(self) -> Iterator[Row]:
        for row in self._sheet.iter_rows():
            values = [None if value == "" else _whole(value) for value in row]
            if any(value is not None for value in values):
                yield values


def _whole(value: Any) -> Any:
    """Return 3 for 3.0: Excel knows no integers."""
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 1e15 else value


# --- Parquet and Arrow ----------------------------------------------------------------------------------------------

_DUCKDB_TYPES = {
    "BIGINT": "integer",
    "INTEGER": "integer",
    "SMALLINT": "integer",
    "TINYINT": "integer",
    "HUGEINT": "integer",
    "UBIGINT": "integer",
    "UINTEGER": "integer",
    "USMALLINT": "integer",
    "UTINYINT": "integer",
    "DOUBLE": "float",
    "FLOAT": "float",
    "VARCHAR": "text",
    "BOOLEAN": "boolean",
    "DATE": "date",
    "TIME": "time",
    "BLOB": "binary",
    "INTERVAL": "duration",
}


def duckdb_type(declared: str) -> str:
    """Return our word for a type of DuckDB."""
    if declared.startswith("TIMESTAMP"):
        return "datetime"
    if declared.startswith("DECIMAL"):
        return "decimal"
    if declared.endswith("]"):
        return "list"
    if declared.startswith(("STRUCT", "MAP", "UNION")):
        return "object"
    return _DUCKDB_TYPES.get(declared, declared.lower()[:40])


class QueryTable(Table):
    """The result of a query in DuckDB; `connect` returns a new connection, closed to the world."""

    def __init__(self, kind: str, connect: Any, query: str) -> None:
        super().__init__()
        self.kind, self._connect, self._query = kind, connect, query
        cursor = self._run(f"SELECT * FROM ({query}) LIMIT 0")
        self.names = unique(column[0] for column in cursor.description)
        self._types = [duckdb_type(str(column[1])) for column in cursor.description]

    @property
    def is_guessed(self) -> bool:
        return False

    def types(self) -> list[str]:
        return self._types

    def rows(self) -> Iterator[Row]:
        cursor = self._run(self._query)
        while rows := self._fetch(cursor):
            yield from map(list, rows)

    def count(self) -> int:
        return self._run(f"SELECT count(*) FROM ({self._query})").fetchone()[0]

    def tail(self, number: int) -> list[Row]:
        start = max(0, self.count() - number)
        return list(map(list, self._run(f"SELECT * FROM ({self._query}) LIMIT {number} OFFSET {start}").fetchall()))

    def _run(self, query: str) -> Any:
        try:
            return self._connect().execute(query)
        except Exception as error:  # noqa: BLE001  the library's errors have no common type
            raise _fault(error) from None

    def _fetch(self, cursor: Any) -> Any:
        try:
            return cursor.fetchmany(_PIECE)
        except Exception as error:  # noqa: BLE001
            raise _fault(error) from None


def _fault(error: Exception) -> Exception:
    return TimeUp() if type(error).__name__ == "InterruptException" else DataError(one_line(error))


class ArrowTable(Table):
    """An Arrow IPC file (Feather) or stream."""

    def __init__(self, path: str, *, stream: bool) -> None:
        super().__init__()
        self._path, self._stream = path, stream
        self.kind = "Arrow stream" if stream else "Arrow (Feather)"
        schema = self.open().schema
        self.names = unique(field.name for field in schema)
        self._declared = [_arrow_type(field.type) for field in schema]

    @property
    def is_guessed(self) -> bool:
        return False

    def types(self) -> list[str]:
        return self._declared

    def open(self) -> Any:
        """Return a reader of batches."""
        arrow = needed("arro3.io", "Arrow")
        try:
            return (arrow.read_ipc_stream if self._stream else arrow.read_ipc)(self._path)
        except Exception as error:  # noqa: BLE001  the library's errors have no common type
            raise DataError(f"it cannot be read as Arrow: {one_line(error)}") from None

    def batches(self) -> Iterator[Any]:
        batches = iter(self.open())
        while True:
            try:
                batch = next(batches, None)
            except Exception as error:  # noqa: BLE001
                raise DataError(f"it cannot be read as Arrow: {one_line(error)}") from None
            if batch is None:
                return
            yield batch

    def rows(self) -> Iterator[Row]:
        for batch in self.batches():
            for start in range(0, batch.num_rows, _PIECE):
                part = batch.slice(start, min(_PIECE, batch.num_rows - start))
                columns = [[value.as_py() for value in column] for column in part.columns]
                yield from map(list, zip(*columns))  # noqa: B905  columns of one batch

    def count(self) -> int:
        return sum(batch.num_rows for batch in self.batches())

    def tail(self, number: int) -> list[Row]:
        start = max(0, self.count() - number)
        found: list[Row] = []
        before = 0
        for batch in self.batches():
            first = max(0, start - before)
            if first < batch.num_rows:
                part = batch.slice(first, batch.num_rows - first)
                columns = [[value.as_py() for value in column] for column in part.columns]
                found += map(list, zip(*columns))  # noqa: B905
            before += batch.num_rows
        return found


def _arrow_type(declared: Any) -> str:
    module = needed("arro3.core", "Arrow")
    kind = module.DataType
    checks = (
        (kind.is_boolean, "boolean"),
        (kind.is_integer, "integer"),
        (kind.is_floating, "float"),
        (kind.is_decimal, "decimal"),
        (kind.is_date, "date"),
        (kind.is_timestamp, "datetime"),
        (kind.is_time, "time"),
        (kind.is_duration, "duration"),
        (kind.is_struct, "object"),
        (kind.is_list, "list"),
        (kind.is_large_list, "list"),
    )
    if kind.is_dictionary(declared):
        return _arrow_type(declared.value_type)
    found = next((name for check, name in checks if check(declared)), "")
    if found:
        return found
    text = str(declared)
    return "text" if "Utf8" in text else "binary" if "Binary" in text else text.lower()[:40]
