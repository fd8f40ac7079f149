"""Embedders, and the thread that gives items their vectors. A write or a search never fails because of an embedder."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from lmagent.core.errors import ConfigError, StoreError
from lmagent.memory.search.database import IndexDatabase

if TYPE_CHECKING:
    from lmagent.memory.search.vectors import Vectors

BATCH = 16
"""Texts a call: a query that arrives meanwhile waits for at most one batch of a local model."""

SOONEST, LATEST = 1.0, 300.0
"""Seconds until rows that failed are tried again; doubled with each failure."""

REST = 30.0
"""Seconds in which queries do without an embedder that failed: a server that hangs would slow each search."""

CACHED = 256
"""Query vectors that are kept."""

_GIVE_UP = 6
"""Failures in a row that end a pass: more than the halvings that isolate one bad text of a batch."""

_ROUNDS = 3
"""Rounds until the items count as embedded although vectors were made in the last one."""

_LEARN_FROM = 200
"""Items below which the weights of tokens are left as they come with the model."""


class Embedder(Protocol):
    """Turns texts into vectors.

    Attributes:
        name: the model; vectors of different names are never compared.
    """

    @property
    def name(self) -> str: ...

    def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """Return a vector for each text, all of the same length. Raise ConfigError if it can never work."""
        ...


@runtime_checkable
class LearningEmbedder(Embedder, Protocol):
    """An embedder that weighs tokens, and can learn the weights from the texts of an index."""

    def learn(self, texts: Iterable[str]) -> bytes:
        """Return the weights that fit the texts."""
        ...

    def embed_with(self, texts: Sequence[str], weights: bytes) -> Sequence[Sequence[float]]:
        """Return vectors made with such weights."""
        ...


class Filler:
    """Embeds the items that have no vector, in a thread that ends when all have one.

    Args:
        notice: receives each new fault as a sentence.

    Attributes:
        fault: why the last attempt failed; empty if it did not.
    """

    def __init__(self, database: IndexDatabase, embedder: Embedder, notice: Callable[[str], None]) -> None:
        self.embedder = embedder
        self.fault = ""
        self._database = database
        self._notice = notice
        self._vectors: Vectors | None = None
        self._failures = self._made = 0
        self._queries: dict[str, Any] = {}
        self._pooling: tuple[int, str, bytes] = (0, "", b"")  # number of the row, name, weights
        self._state = threading.Condition()
        self._thread: threading.Thread | None = None
        self._woken = self._again = False
        self._hopeless = False
        self._closed = False
        self._rest_until = 0.0

    @property
    def vectors(self) -> Vectors | None:
        """Return the vectors; None while they cannot be used."""
        if self._vectors is None and not self._hopeless:
            try:
                from lmagent.memory.search.vectors import Vectors
            except ImportError:
                self._failed(ConfigError("vectors need NumPy", terminal="pip install 'lmagent-local[embed]'"))
                return None
            self._vectors = Vectors(self._database)
        return self._vectors

    @property
    def loaded(self) -> Vectors | None:
        """Return the vectors if they have been used in this process."""
        return self._vectors

    def wake_once(self) -> None:
        """Begin to embed the items that earlier processes left without a vector."""
        if not self._woken:
            self.wake()

    def wake(self) -> None:
        """Begin to embed the items that have no vector."""
        with self._state:
            self._woken = True
            self._again = True
            if self._thread is None and not self._hopeless and not self._closed:
                self._thread = threading.Thread(target=self._run, name="memory-embedding", daemon=True)
                self._thread.start()

    def wait(self, timeout: float) -> bool:
        """Wait until nothing is left to embed; False if something is after so many seconds."""
        with self._state:
            self._state.wait_for(lambda: self._thread is None, timeout)
            return self._thread is None and not self.fault

    def close(self) -> None:
        with self._state:
            self._closed = True
            self._state.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(2)

    def query_vector(self, query: str) -> Any:
        """Return the vector of a query, as an array; None if the embedder is at rest or fails."""
        vectors = self.vectors
        if vectors is None or self._hopeless or time.monotonic() < self._rest_until or not query.strip():
            return None
        self._current_pooling()  # forgets the vectors of queries if another process has learned a new one
        if (known := self._queries.get(query)) is not None:
            return known
        made = self._embed([query])
        if made is None:
            self._rest_until = time.monotonic() + REST
            return None
        with self._state:
            if len(self._queries) >= CACHED:
                self._queries.pop(next(iter(self._queries)))
            self._queries[query] = made[0]
        return made[0]

    def learn(self) -> bool:
        """Learn the weights of tokens anew if the index has grown by half since; return whether they changed."""
        embedder = self.embedder
        if not isinstance(embedder, LearningEmbedder) or self._hopeless:
            return False

        def texts(connection: sqlite3.Connection) -> list[str]:
            (count,) = connection.execute("SELECT count(*) FROM item").fetchone()
            latest = "SELECT items FROM pooling WHERE model = ? ORDER BY number DESC LIMIT 1"
            known = connection.execute(latest, (embedder.name,)).fetchone()
            if count < max(_LEARN_FROM, known[0] * 1.5 if known else 0):
                return []
            return [text for (text,) in connection.execute("SELECT text FROM item")]

        if not (found := self._database.read(texts)):
            return False
        try:
            weights = embedder.learn(found)
        except ConfigError as error:
            self._failed(error)
            return False

        def store(connection: sqlite3.Connection) -> None:
            row = (embedder.name, f"learned-{int(time.time())}", len(found), weights)
            add = "INSERT INTO pooling (model, name, items, weights) VALUES (?, ?, ?, ?)"
            new = connection.execute(add, row).lastrowid
            connection.execute("DELETE FROM pooling WHERE model = ? AND number < ?", (embedder.name, new))

        self._database.write(store)
        self.wake()
        return True

    # --- the thread -----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        pause, rounds = SOONEST, 0
        while True:
            self._again, self._made, rounds = False, 0, rounds + 1
            try:
                whole = self._pass()
            except StoreError as error:  # closed meanwhile, or a full disk
                self._failed(error)
                whole = False
            with self._state:
                # A server that changed its model in the middle makes earlier vectors old: they get a second round.
                done = not self._made or rounds >= _ROUNDS
                if self._closed or self._hopeless or (whole and done and not self._again):
                    self._thread = None
                    self._state.notify_all()
                    return
                if whole:
                    continue
                self._state.wait_for(lambda: self._closed, pause)
                pause = min(pause * 2, LATEST)

    def _pass(self) -> bool:
        """Embed each item without a vector once; return whether all succeeded."""
        whole, cursor, self._failures = True, 0, 0
        while not self._closed and self.vectors is not None:
            batch = self._pending(cursor)
            if not batch:
                break
            cursor = batch[-1][0]
            whole = self._fill(batch) and whole
            if self._failures >= _GIVE_UP:
                return False
        return whole

    def _pending(self, cursor: int) -> list[tuple[int, str]]:
        model, pooling = self.embedder.name, self._current_pooling()[0]

        def find(connection: sqlite3.Connection) -> list[tuple[int, str]]:
            newest = "SELECT max(number) FROM space WHERE model = ? AND pooling = ?"
            space = connection.execute(newest, (model, pooling)).fetchone()[0] or -1
            counts = "SELECT (SELECT count(*) FROM item) = (SELECT count(*) FROM vector WHERE space = ?)"
            if connection.execute(counts, (space,)).fetchone()[0]:  # far quicker than looking at each item
                return []
            return connection.execute(
                "SELECT item.number, item.text FROM item LEFT JOIN vector ON vector.number = item.number"
                " WHERE item.number > ? AND vector.space IS NOT ? ORDER BY item.number LIMIT ?",
                (cursor, space, BATCH),
            ).fetchall()

        return self._database.read(find)

    def _fill(self, batch: Sequence[tuple[int, str]]) -> bool:
        """Embed and store a batch; if it fails, each of its halves."""
        if self._closed or self._failures >= _GIVE_UP:
            return False
        pooling = self._current_pooling()[0]
        made = self._embed([text for _, text in batch])
        if made is not None:
            assert self._vectors is not None
            self._vectors.store(batch, made, self.embedder.name, pooling)
            self._failures = 0
            self._made += len(batch)
            return True
        self._failures += 1
        if self._hopeless or len(batch) == 1:
            return False
        middle = len(batch) // 2
        return all([self._fill(batch[:middle]), self._fill(batch[middle:])])

    def _embed(self, texts: Sequence[str]) -> Any:
        """Return arrays of length 1, or None after any failure."""
        from lmagent.memory.search.vectors import unit_rows

        embedder, weights = self.embedder, self._current_pooling()[1]
        try:
            if weights and isinstance(embedder, LearningEmbedder):
                rows = unit_rows(embedder.embed_with(texts, weights), len(texts))
            else:
                rows = unit_rows(embedder.embed(texts), len(texts))
        except Exception as error:  # noqa: BLE001 - an embedder is foreign code: no write is lost by its errors
            self._failed(error)
            return None
        self.fault = ""
        return rows

    def _current_pooling(self) -> tuple[str, bytes]:
        """Return the name of the weights of tokens and, if they were learned, the weights."""

        def newest(connection: sqlite3.Connection) -> tuple[int, str, bytes]:
            latest = "SELECT max(number) FROM pooling WHERE model = ?"
            (number,) = connection.execute(latest, (self.embedder.name,)).fetchone()
            if (number or 0) == self._pooling[0]:
                return self._pooling
            self._queries.clear()
            row = connection.execute("SELECT number, name, weights FROM pooling WHERE number = ?", (number,)).fetchone()
            return row or (0, "", b"")

        self._pooling = self._database.read(newest)
        return self._pooling[1], self._pooling[2]

    def _failed(self, error: Exception) -> None:
        fault = f"{self.embedder.name}: {error}"
        self._hopeless = self._hopeless or isinstance(error, ConfigError)
        if fault != self.fault:
            self.fault = fault
            self._notice(f"Memories are found by their words alone, because vectors cannot be made. {fault}")
