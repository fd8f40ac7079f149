"""The database of an index: one connection for all threads, and a new file in place of one that cannot be read."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import TypeVar

from lmagent.core.errors import StoreError
from lmagent.store.database import NewerSchemaError, connect, is_damage, move_aside
from lmagent.store.files import make_private

T = TypeVar("T")

_SCHEMA = "lmagent.memory.search.migrations"
_APPLICATION = 1819108718  # as in 0001_items.sql


class IndexDatabase:
    """A database that begins anew if it is damaged or another program's; the old file stays beside it.

    Args:
        path: the file; it and its folder are made if they are missing.
        notice: receives a sentence for the user when a file was set aside.

    Attributes:
        generation: grows with each file that was set aside. Rows of an earlier generation no longer exist.
    """

    def __init__(self, path: Path, notice: Callable[[str], None]) -> None:
        self.path = path
        self.generation = 0
        self._notice = notice
        self._lock = threading.RLock()
        self._connection, self._inode = self._open()

    def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` while no other thread uses the connection, again on a new database if this one is damaged.

        Raises StoreError if the database cannot be used.
        """
        with self._lock:
            try:
                return work(self._connection)
            except sqlite3.Error as error:
                if not is_damage(error):
                    raise self._failure(error) from error
                self._replace(str(error))
                return work(self._connection)

    def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` in a transaction, which waits for another process that writes. Raise StoreError as `read` does."""
        return self.read(lambda connection: _in_transaction(connection, work))

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    def _open(self) -> tuple[sqlite3.Connection, int]:
        try:
            make_private(self.path.parent)
            if reason := _unusable(self.path):
                self._set_aside(reason)
            connection = connect(self.path, _SCHEMA, threads=True)
            connection.execute("PRAGMA secure_delete = ON")
            return connection, os.stat(self.path).st_ino
        except (sqlite3.Error, OSError) as error:
            raise self._failure(error) from error

    def _replace(self, reason: str) -> None:
        """Begin a new database, unless another process has done so."""
        self._connection.close()
        with suppress(FileNotFoundError):
            if os.stat(self.path).st_ino == self._inode:
                self._set_aside(reason)
        self.generation += 1
        self._connection, self._inode = self._open()

    def _set_aside(self, reason: str) -> None:
        if not move_aside(self.path):
            raise StoreError(f"the memory index {self.path} cannot be used ({reason}), nor moved", fix="move it away")
        self._notice(f"The memory index {self.path} was set aside ({reason}). A new one was begun.")

    def _failure(self, error: Exception) -> StoreError:
        return StoreError(f"the memory index {self.path} cannot be used: {error}")


def _unusable(path: Path) -> str:
    """Return why an existing file cannot be the index; empty if it can."""
    if not path.exists():
        return ""
    try:
        with closing(sqlite3.connect(path)) as connection:
            (application,) = connection.execute("PRAGMA application_id").fetchone()
            (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if tables and application != _APPLICATION:
            return "it belongs to another program"
        connect(path, _SCHEMA, threads=True).close()
    except NewerSchemaError:
        return "it belongs to a newer version of lmagent"
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            raise
        return str(error)
    return ""


def _in_transaction(connection: sqlite3.Connection, work: Callable[[sqlite3.Connection], T]) -> T:
    connection.execute("BEGIN IMMEDIATE")
    try:
        result = work(connection)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return result
