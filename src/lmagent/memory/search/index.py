"""The index: one SQLite file with items, words (FTS5) and vectors. docs/memory.md describes its use."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmagent.core.errors import StoreError
from lmagent.core.memory import Hit, MemoryItem
from lmagent.memory.search import rows
from lmagent.memory.search.database import IndexDatabase
from lmagent.memory.search.embedding import Embedder, Filler
from lmagent.memory.search.items import Loose, as_item
from lmagent.memory.search.query import query_words, without_names
from lmagent.memory.search.recipe import base_scores, fuse

if TYPE_CHECKING:
    from lmagent.memory.search.vectors import Vectors

POOL = 100
"""Items that each half of the search proposes; their neighbours are candidates too."""

_CHUNK = 1000
"""Items a transaction: another process that wants to write waits no longer than for one."""

_DAMAGED_COPIES = ".damaged-*"


class SqliteMemoryIndex:
    """A MemoryIndex in one file, for many threads and processes.

    Args:
        path: the database.
        embedder: makes vectors, in a thread of its own; without one the words count alone.
        notice: receives sentences for the user: a damaged file was set aside, vectors cannot be made.
    """

    def __init__(self, path: Path, embedder: Embedder | None, notice: Callable[[str], None]) -> None:
        self.path = path
        self._database = IndexDatabase(path, notice)
        self._filler = Filler(self._vectors, embedder, notice) if embedder else None

    def _vectors(self) -> Vectors:
        from lmagent.memory.search.vectors import Vectors  # needs NumPy

        return Vectors(self._database)

    @property
    def fault(self) -> str:
        """Return why vectors cannot be made at present; empty if they can, or no embedder was given."""
        return self._filler.fault if self._filler else ""

    def __enter__(self) -> SqliteMemoryIndex:
        return self

    def __exit__(self, *why: object) -> None:
        self.close()

    def close(self) -> None:
        if self._filler:
            self._filler.close()
        self._database.close()

    # --- writing --------------------------------------------------------------------------------------------------

    def index(self, items: Iterable[Loose]) -> None:
        """Add items, or replace those with the same id. The next search finds them; their vectors come later.

        Raises:
            ValueError: an item has no id or text, or a time that cannot be read; nothing was written.
            StoreError: the database cannot be written.
        """
        read = [as_item(item) for item in items]
        for start in range(0, len(read), _CHUNK):
            chunk = read[start : start + _CHUNK]
            self._database.write(lambda connection, chunk=chunk: rows.upsert(connection, chunk))
        if self._filler and read:
            self._filler.wake()

    def remove(self, ids: Iterable[str]) -> int:
        wanted = list(ids)
        return self._database.write(lambda connection: rows.delete(connection, wanted))

    def purge(self, ids: Iterable[str]) -> int:
        """Remove items so that no byte of their text is left in the file, its log, or files that were set aside.

        Raises StoreError if another process is reading and keeps the log from being emptied: call it again.
        """
        removed = self.remove(ids)

        def clean(connection: sqlite3.Connection) -> None:
            # Deleted words stay in FTS5's segments until these are merged, and pages are zeroed only when freed.
            connection.execute("INSERT INTO word (word) VALUES ('rebuild')")
            connection.execute("VACUUM")
            if connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
                raise StoreError(
                    "another process is reading the memory index: its log still holds the text", fix="try again"
                )

        self._database.read(clean)
        for copy in self.path.parent.glob(f"{self.path.name}{_DAMAGED_COPIES}"):
            copy.unlink(missing_ok=True)
        return removed

    def maintain(self) -> None:
        """Tidy the file: merge the parts of the index of words."""
        self._database.read(lambda connection: connection.execute("INSERT INTO word (word) VALUES ('optimize')"))

    def wait_embedded(self, timeout: float) -> bool:
        """Wait until each item has a vector; False if one has none after so many seconds, or no embedder was given."""
        if not self._filler:
            return False
        self._filler.wake()
        return self._filler.wait(timeout)

    # --- reading --------------------------------------------------------------------------------------------------

    def search(
        self, query: str, k: int, *, now: float | None = None, since: float | None = None, until: float | None = None
    ) -> list[Hit]:
        """Return up to `k` items, the best first; see `MemoryIndex.search`."""
        words = query_words(query)
        if k <= 0 or not words:
            return []
        vector = self.query_vector(query)
        times = (since, until) if since is not None or until is not None else None
        return self._database.read(lambda connection: self._search(connection, words, vector, times, k, now))

    def query_vector(self, query: str) -> Any:
        """Return the vector of a query without speakers' names, made once; None without an embedder, or if it fails."""
        if not self._filler:
            return None
        self._filler.wake_once()
        return self._filler.query_vector(without_names(query, self._database.read(rows.speakers)))

    def _search(
        self,
        connection: sqlite3.Connection,
        words: list[str],
        vector: Any,
        times: rows.Times | None,
        k: int,
        now: float | None,
    ) -> list[Hit]:
        pool = max(POOL, k)
        matched = rows.matches(connection, words, pool, times)
        if self._filler is None or vector is None or (vectors := self._filler.vectors) is None:
            cosines = None
            found = rows.candidates(connection, matched, frozenset(words))
        else:
            vectors.refresh(connection, self._filler.embedder.name, len(vector))
            allowed = rows.numbers_within(connection, times) if times else None
            nearest = vectors.nearest(connection, vector, pool, allowed)
            found = rows.candidates(connection, {*matched, *nearest}, frozenset(words))
            cosines = vectors.cosines(connection, vector, found)
        return rows.best_hits(connection, fuse(found, base_scores(matched, cosines)), times, k, now)

    def around(self, ids: Iterable[str], span: int = 1) -> Mapping[str, Sequence[MemoryItem]]:
        wanted = list(ids)
        return self._database.read(
            lambda connection: {id: found for id in wanted if (found := rows.around(connection, id, span))}
        )

    def count(self) -> int:
        return self._database.read(lambda connection: connection.execute("SELECT count(*) FROM item").fetchone()[0])
