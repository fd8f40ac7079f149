"""Sources: an index that is filled from files and logs, and knows how far it has read each of them.

A source's items have its name as their session. Its mark is written with its last items, so a crash before that reads
it again, and nothing twice: items are known by their ids.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from lmagent.core.memory import MemoryIndex, MemoryItem
from lmagent.memory.search.index import SqliteMemoryIndex


class SourcedIndex(MemoryIndex, Protocol):
    """An index over files and logs."""

    @property
    def kind(self) -> str:
        """Return what finds items: words, or words and vectors of a model."""
        ...

    def marks(self) -> dict[str, str]:
        """Return the mark of each source."""
        ...

    def take(self, source: str, mark: str, items: Sequence[MemoryItem], *, whole: bool) -> None:
        """Add items of a source; with `whole` they are all that it has, and others of it are removed."""
        ...

    def drop(self, source: str) -> None:
        """Remove a source that is gone, with its items."""
        ...

    def ids_of_texts(self, is_meant: Callable[[str], bool]) -> list[str]:
        """Return the ids of the items whose text is meant."""
        ...

    def alike(self, text: str, least: float, prefix: str) -> str:
        """Return the id that means most nearly the same of those that begin with `prefix`, from a cosine of `least` on.

        Empty without such an item, or without vectors.
        """
        ...


class SqliteSourcedIndex(SqliteMemoryIndex):
    """The embedded one."""

    def marks(self) -> dict[str, str]:
        return self._database.read(lambda connection: dict(connection.execute("SELECT name, mark FROM source")))

    def take(self, source: str, mark: str, items: Sequence[MemoryItem], *, whole: bool) -> None:
        if whole:
            kept = {item.id for item in items}
            self.remove([id for id in self._ids(source) if id not in kept])
        self.index(items)
        self._database.write(
            lambda connection: connection.execute("INSERT OR REPLACE INTO source VALUES (?, ?)", (source, mark))
        )

    def drop(self, source: str) -> None:
        self.remove(self._ids(source))
        self._database.write(lambda connection: connection.execute("DELETE FROM source WHERE name = ?", (source,)))

    def ids_of_texts(self, is_meant: Callable[[str], bool]) -> list[str]:
        def find(connection: sqlite3.Connection) -> list[str]:
            return [id for id, text in connection.execute("SELECT id, text FROM item") if is_meant(text)]

        return self._database.read(find)

    def alike(self, text: str, least: float, prefix: str) -> str:
        if self._filler is None:
            return ""
        vector, vectors = self._filler.query_vector(text), self._filler.vectors
        if vector is None or vectors is None:
            return ""
        name = self._filler.embedder.name

        def find(connection: sqlite3.Connection) -> str:
            vectors.refresh(connection, name, len(vector))
            ids = dict(connection.execute("SELECT number, id FROM item WHERE id GLOB ?", (f"{prefix}*",)))
            nearest = vectors.nearest(connection, vector, 1, list(ids))
            cosines = vectors.cosines(connection, vector, nearest)
            return next((ids[number] for number, cosine in cosines.items() if cosine >= least), "")

        return self._database.read(find)

    @property
    def kind(self) -> str:
        if self._filler is None or self.fault:
            return "words"
        return f"words and vectors of {self._filler.embedder.name}"

    def _ids(self, source: str) -> Iterable[str]:
        def find(connection: sqlite3.Connection) -> list[str]:
            return [id for (id,) in connection.execute("SELECT id FROM item WHERE session = ?", (source,))]

        return self._database.read(find)
