"""SQL: one SELECT over the file, in DuckDB; over a SQLite file, in SQLite.

DuckDB may open the named file and no other, and installs and loads nothing. That is for clear refusals: the guarantee
is the sandbox, in which no other file of the user and no network exist.
"""

from __future__ import annotations

import json
import os
import sqlite3
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from itertools import islice
from typing import Any

from .binary import (
    ArrowTable,
    Workbook,
    duckdb_type,
    needed,
    one_line,
    only_reads,
    open_sqlite,
    sqlite_errors,
    sqlite_tables,
)
from .csvtext import CsvTable
from .formats import format_of, open_table
from .table import LOOKED_AT, Row, Table
from .values import DataError, TimeLimit, TimeUp, guessed, merged, type_of, unique

MEMORY = "512MB"
"""Memory of a query, inside the limit of the worker."""

COPIED = 200 << 20
"""Bytes of a copy of a file whose format DuckDB cannot read by itself."""

SHEETS = 30
"""Sheets of a workbook that a query can name."""

_BEGINNINGS = ("select", "with", "from", "values", "(")
_TYPES = {
    "integer": "BIGINT",
    "float": "DOUBLE",
    "decimal": "DOUBLE",
    "boolean": "BOOLEAN",
    "date": "DATE",
    "datetime": "TIMESTAMP",
}


def is_sql(query: str) -> bool:
    """Return whether a text is a query, and no name of a table or sheet."""
    return query.lstrip().lower().startswith(_BEGINNINGS) and bool(query.strip()) and " " in query.strip()


class QueryResult(Table):
    """The result of one SELECT, up to a number of rows; `more` is whether it has further ones."""

    def __init__(self, kind: str, names: Sequence[str], types: list[str] | None, rows: list[Row], most: int) -> None:
        super().__init__()
        self.kind, self.names = kind, unique(names)
        self.more = len(rows) > most
        self._rows = rows[:most]
        self._types = types

    def rows(self) -> Iterator[Row]:
        return iter(self._rows)

    def types(self) -> list[str]:
        return self._types or guessed(self._rows, len(self.names), type_of)

    @property
    def is_guessed(self) -> bool:
        return self._types is None


def select(path: str, name: str, query: str, most: int, limit: TimeLimit) -> QueryResult:
    """Return the result of a query. Raises DataError or TimeUp."""
    if not query.strip():
        raise DataError("the operation sql needs a query, such as SELECT * FROM data LIMIT 5")
    found = format_of(path, name)
    if found == "sqlite":
        return _in_sqlite(path, query, most, limit)
    duckdb = needed("duckdb", "sql")
    with closing(_connect(duckdb, limit)) as connection:
        kind, opened = _fill(connection, path, name, found, limit)
        _close_off(connection, opened)
        try:
            statements = connection.extract_statements(query)
            if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
                raise DataError("only one SELECT is run: the file is only looked at")
            cursor = connection.execute(query)
            rows = list(map(list, cursor.fetchmany(most + 1)))
        except duckdb.InterruptException:
            raise TimeUp from None
        except duckdb.Error as error:
            raise DataError(one_line(error)) from None
        names = [column[0] for column in cursor.description]
        types = [duckdb_type(str(column[1])) for column in cursor.description]
        return QueryResult(kind, names, types, rows, most)


def parquet(path: str, limit: TimeLimit) -> Any:
    """Return a connection in which `data` is a Parquet file."""
    connection = _connect(needed("duckdb", "Parquet"), limit)
    _view(connection, "data", f"read_parquet({_quoted(path)})")
    _close_off(connection, [path])
    return connection


def _connect(duckdb: Any, limit: TimeLimit) -> Any:
    connection = duckdb.connect(
        config={
            "memory_limit": MEMORY,
            "threads": 2,
            "temp_directory": "",
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
        }
    )

    def interrupt() -> None:
        with suppress(Exception):  # it is closed
            connection.interrupt()

    timer = threading.Timer(limit.seconds, interrupt)
    timer.daemon = True
    timer.start()
    return connection


def _close_off(connection: Any, opened: Sequence[str]) -> None:
    allowed = ", ".join(map(_quoted, opened))
    connection.execute(f"SET allowed_paths=[{allowed}]")
    connection.execute("SET enable_external_access=false")
    connection.execute("SET lock_configuration=true")


def _fill(connection: Any, path: str, name: str, found: str, limit: TimeLimit) -> tuple[str, list[str]]:
    """Make the tables of a file; return its kind, and the files that the query may open."""
    if found == "excel":
        book = Workbook(path)
        opened = list[str]()
        for sheet in book.sheets[:SHEETS]:
            try:
                table = book.sheet(sheet)
            except DataError:  # an empty sheet, or a chart
                continue
            opened.append(_copy(connection, sheet, table))
            if len(book.sheets) == 1:
                _view(connection, "data", _identifier(sheet))
        if not opened:
            raise DataError("it has no sheet with rows")
        return f"Excel, tables {', '.join(book.sheets[:SHEETS])}"[:300], opened
    if found == "parquet":
        _view(connection, "data", f"read_parquet({_quoted(path)})")
        return "Parquet", [path]
    table = open_table(path, name, "", limit)
    if isinstance(table, ArrowTable):
        connection.register("data", table.open().read_all())
        return table.kind, []
    if isinstance(table, CsvTable) and (source := _read_csv(table)):
        _view(connection, "data", source)
        return table.kind, [path]
    return table.kind, [_copy(connection, "data", table)]


def _view(connection: Any, name: str, source: str) -> None:
    try:
        connection.execute(f"CREATE VIEW {_identifier(name)} AS SELECT * FROM {source}")
    except Exception as error:  # noqa: BLE001  the library's errors have no common type
        raise DataError(one_line(error)) from None


def _read_csv(table: CsvTable) -> str:
    """Return DuckDB's call that reads a CSV file with the dialect that was detected.

    Empty if DuckDB would read it in another way: other encodings, and rows of different lengths.
    """
    file = table.file
    rows = list(islice(table.rows(), LOOKED_AT))
    if file.codec not in ("utf-8", "latin-1") or file.is_old_mac or file.undecodable or table.is_ragged:
        return ""
    types = guessed(rows, len(table.names), table.judge)
    text = {name: "VARCHAR" for name, kind in zip(table.names, types) if kind == "text"}  # noqa: B905
    options = {
        "delim": _quoted(table.delimiter),
        "quote": _quoted(table.quote),
        "escape": _quoted(table.escape or table.quote),
        "header": str(table.has_header).lower(),
        "names": _list(table.names),
        "types": _struct(text),
        "encoding": _quoted(file.codec),
        "max_line_size": "16777216",
    }
    given = ", ".join(f"{option}={value}" for option, value in options.items() if value)
    return f"read_csv({_quoted(file.path)}, {given})"


def _copy(connection: Any, name: str, table: Table) -> str:
    """Write a table to a file of our own that DuckDB reads, and return its path."""
    handle, path = tempfile.mkstemp(suffix=".csv")
    types: list[set[str]] = [set() for _ in table.names]
    size = 0
    with open(handle, "w", encoding="utf-8", errors="replace", newline="") as file:
        for row in table.rows():
            cells = list[str]()
            for at, value in enumerate(row):
                if value is None:
                    cells.append("")
                    continue
                types[at].add(_stored_type(table.judge(value), value))
                cells.append('"' + _stored(value).replace('"', '""') + '"')
            line = ",".join(cells)
            size += len(line) + 1
            if size > COPIED:
                os.unlink(path)
                raise DataError(
                    f"it is too large for sql: in this format {COPIED >> 20} MB are read. Make Parquet or CSV of it"
                )
            file.write(line + "\n")
    declared = {column: _TYPES.get(merged(found), "VARCHAR") for column, found in zip(table.names, types)}  # noqa: B905
    options = "delim=',', quote='\"', escape='\"', header=false, auto_detect=false, allow_quoted_nulls=false"
    options += f", columns={_struct(declared)}, null_padding=false, max_line_size=16777216"
    if not size:
        columns = ", ".join(f"{_identifier(column)} VARCHAR" for column in declared)
        connection.execute(f"CREATE TABLE {_identifier(name)} ({columns})")
    else:
        _view(connection, name, f"read_csv({_quoted(path)}, {options})")
    return path


def _stored_type(found: str, value: Any) -> str:
    return "text" if found == "integer" and abs(int(value)) >= 1 << 63 else found


def _stored(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (dict, list)):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)


def _in_sqlite(path: str, query: str, most: int, limit: TimeLimit) -> QueryResult:
    with sqlite_errors(), closing(open_sqlite(path, limit)) as connection:
        try:
            tables = sqlite_tables(connection)
            if len(tables) == 1 and tables[0].lower() != "data":
                connection.set_authorizer(None)
                connection.execute("PRAGMA temp_store=MEMORY")
                source = tables[0].replace('"', '""')
                connection.execute(f'CREATE TEMP VIEW data AS SELECT * FROM "{source}"')
                connection.set_authorizer(only_reads)
            cursor = connection.execute(query)
            rows = list(map(list, cursor.fetchmany(most + 1)))
        except sqlite3.OperationalError as error:
            if "interrupted" in str(error):
                raise TimeUp from None
            raise DataError(one_line(error)) from None
        except (sqlite3.Error, sqlite3.Warning) as error:
            if "not authorized" in str(error):
                raise DataError("only one SELECT is run: the file is only looked at") from None
            raise DataError(one_line(error)) from None
        if cursor.description is None:
            raise DataError("only one SELECT is run: the file is only looked at")
        return QueryResult("SQLite", [column[0] for column in cursor.description], None, rows, most)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _list(names: Sequence[str]) -> str:
    return "[" + ", ".join(map(_quoted, names)) + "]"


def _struct(values: dict[str, str]) -> str:
    return (
        "{" + ", ".join(f"{_quoted(name)}: {_quoted(value)}" for name, value in values.items()) + "}" if values else ""
    )
