"""Opening the index's database: schema, damage, and read-only folders."""

from __future__ import annotations

import errno
import os
import sqlite3
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path

from lmagent.store.files import FILE_MODE, OPEN_FLAGS

BUSY_SECONDS = 5.0
"""How long a process waits for another one that is writing the index."""

_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT)


class NewerSchemaError(Exception):
    """The database belongs to a newer version of lmagent, which needs it unchanged."""


def open_database(path: Path | None) -> sqlite3.Connection:
    """Open the database at `path`, created and migrated as needed; without a path, in memory.

    A damaged file is moved aside; if the path cannot be used otherwise, the index is in memory, for this process only.
    The logs hold the same facts, so neither loses anything.
    """
    if path is not None and path.parent.is_dir():
        with suppress(NewerSchemaError, OSError, sqlite3.DatabaseError):
            try:
                return connect(path)
            except sqlite3.DatabaseError as error:
                if is_damage(error) and move_aside(path):
                    return connect(path)
    return connect(None)


def connect(
    path: Path | None, migrations: str = "lmagent.store.migrations", *, threads: bool = False
) -> sqlite3.Connection:
    """Connect to a database, with the schema that the SQL files in the package `migrations` describe.

    With `threads`, several threads may use the connection, one at a time.

    Raises:
        NewerSchemaError: its schema has more steps.
        sqlite3.DatabaseError: it is damaged, or no database.
        OSError: it cannot be made.
    """
    if path is not None:
        _make(path)
    # Transactions begin and end explicitly (`isolation_level=None`), not by sqlite3's guess from the statement.
    connection = sqlite3.connect(
        path or ":memory:", timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=not threads
    )
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        _migrate(connection, migrations)
    except BaseException:
        connection.close()
        raise
    return connection


def _make(path: Path) -> None:
    """Create a missing file, because SQLite would make it readable for all users.

    A database is never opened beside SQLite: closing it again would drop the locks that other connections of this
    process hold on it, and another process would take away the WAL under them (sqlite.org, "How To Corrupt An SQLite
    Database File", 2.2). So the file is made under another name and renamed when nothing has it open.

    Raises OSError if it cannot be made, or its name belongs to something that is no file.
    """
    with suppress(FileNotFoundError):
        if not stat.S_ISREG(os.lstat(path).st_mode):
            raise OSError(errno.ELOOP, "is no file", str(path))
        return
    beside = path.with_name(f".{path.name}.{os.urandom(6).hex()}")
    os.close(os.open(beside, os.O_RDWR | os.O_CREAT | os.O_EXCL | OPEN_FLAGS, FILE_MODE))
    try:
        with suppress(FileExistsError):
            os.link(beside, path)
    finally:
        os.unlink(beside)


def _migrate(connection: sqlite3.Connection, migrations: str) -> None:
    """Bring the schema up to date; `PRAGMA user_version` counts the applied steps."""
    steps = _steps(migrations)
    version = _version(connection)
    if version > len(steps):
        raise NewerSchemaError
    if version == len(steps):
        return
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        for number, file in enumerate(steps, 1):
            if number > _version(connection):  # another process may have been faster
                for statement in _statements(file.read_text(encoding="utf-8")):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {number}")


def _version(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


def _steps(migrations: str) -> list[Path]:
    return sorted(Path(import_module(migrations).__path__[0]).glob("*.sql"))


def _statements(script: str) -> Iterator[str]:
    """Yield one statement at a time: `executescript` would end the transaction before it begins."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def is_damage(error: sqlite3.Error) -> bool:
    """Whether SQLite reports that the file itself is damaged or no database."""
    return (getattr(error, "sqlite_errorcode", 0) & 0xFF) in _DAMAGED


def move_aside(path: Path) -> bool:
    """Rename a damaged database and its side files; False if that is not possible."""
    aside = f".damaged-{int(time.time())}"
    try:
        os.replace(path, f"{path}{aside}")
    except FileNotFoundError:
        return True
    except OSError:
        return False
    for suffix in ("-wal", "-shm"):
        with suppress(OSError):
            os.replace(f"{path}{suffix}", f"{path}{aside}{suffix}")
    return True
