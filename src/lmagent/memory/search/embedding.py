"""Embedders, and the thread that gives items their vectors. A write or a search never fails because of an embedder."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from lmagent.core.errors import ConfigError, StoreError

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


Batch = Sequence[tuple[int, str]]
"""Items: their numbers and texts."""


class VectorTable(Protocol):
    """Where the vectors of an index are kept."""

    def pending(self, model: str, after: int, limit: int) -> Batch:
        """Return the next items after a number that have no vector of the model. Raise StoreError."""
        ...

    def store(self, batch: Batch, rows: Any, model: str) -> None:
        """Write the vectors of items, except of those whose text has changed meanwhile. Raise StoreError."""
        ...


V = TypeVar("V", bound=VectorTable)


class Filler(Generic[V]):
    """Embeds the items that have no vector, in a thread that ends when all have one.

    Args:
        open_vectors: opens their table at the first use. Raises ImportError without NumPy, ConfigError if there cannot
            be vectors.
        notice: receives each new fault as a sentence.

    Attributes:
        fault: why the last attempt failed; empty if it did not.
    """

    def __init__(self, open_vectors: Callable[[], V], embedder: Embedder, notice: Callable[[str], None]) -> None:
        self.embedder = embedder
        self.fault = ""
        self._open_vectors = open_vectors
        self._notice = notice
        self._vectors: V | None = None
        self._failures = 0
        self._queries: dict[str, Any] = {}
        self._state = threading.Condition()
        self._thread: threading.Thread | None = None
        self._woken = self._hopeless = self._closed = False
        self._rest_until = 0.0

    @property
    def vectors(self) -> V | None:
        """Return the vectors; None while they cannot be used."""
        if self._vectors is None and not self._hopeless:
            try:
                self._vectors = self._open_vectors()
            except ImportError:
                self._failed(ConfigError("vectors need NumPy", terminal="pip install 'lmagent-local[embed]'"))
            except (ConfigError, StoreError) as error:
                self._failed(error)
        return self._vectors

    def wake_once(self) -> None:
        """Begin to embed the items that earlier processes left without a vector."""
        if not self._woken:
            self.wake()

    def wake(self) -> None:
        """Begin to embed the items that have no vector."""
        with self._state:
            self._woken = True
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
        if self.vectors is None or self._hopeless or time.monotonic() < self._rest_until or not query.strip():
            return None
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

    # --- the thread -----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        pause = SOONEST
        while True:
            whole = self._pass()
            with self._state:  # an item that is written after the last look wakes a new thread
                if self._closed or self._hopeless or (whole and not self._pending(0)):
                    self._thread = None
                    self._state.notify_all()
                    return
                # A server may also have changed its model in the middle, which makes earlier vectors old.
                self._state.wait_for(lambda: self._closed, pause)
            pause = min(pause * 2, LATEST)

    def _pass(self) -> bool:
        """Embed each item without a vector once; return whether all succeeded."""
        whole, cursor, self._failures = True, 0, 0
        while self._goes_on and (batch := self._pending(cursor)):
            cursor = batch[-1][0]
            whole = self._fill(batch) and whole
        return whole

    @property
    def _goes_on(self) -> bool:
        return self.vectors is not None and not self._closed and not self._hopeless and self._failures < _GIVE_UP

    def _pending(self, cursor: int) -> Batch:
        """Return the next items without a vector; none if the database cannot be read."""
        if self._vectors is None:
            return []
        try:
            return self._vectors.pending(self.embedder.name, cursor, BATCH)
        except StoreError as error:  # closed meanwhile
            self._failed(error)
            return []

    def _fill(self, batch: Batch) -> bool:
        """Embed and store a batch; if it fails, each of its halves."""
        if not self._goes_on or self._vectors is None:
            return False
        made = self._embed([text for _, text in batch])
        try:
            if made is not None:
                self._vectors.store(batch, made, self.embedder.name)
                self._failures = 0
                return True
        except StoreError as error:  # a full disk
            self._failed(error)
        self._failures += 1
        if len(batch) == 1:
            return False
        middle = len(batch) // 2
        return all([self._fill(batch[:middle]), self._fill(batch[middle:])])

    def _embed(self, texts: Sequence[str]) -> Any:
        """Return arrays of length 1, or None after any failure."""
        from lmagent.memory.search.vectors import unit_rows

        try:
            rows = unit_rows(self.embedder.embed(texts), len(texts))
        except Exception as error:  # noqa: BLE001 - an embedder is foreign code: no write is lost by its errors
            self._failed(error)
            return None
        self.fault = ""
        return rows

    def _failed(self, error: Exception) -> None:
        fault = f"{self.embedder.name}: {error}"
        self._hopeless = self._hopeless or isinstance(error, ConfigError)
        if fault != self.fault:
            self.fault = fault
            self._notice(f"Memories are found by their words alone, because vectors cannot be made. {fault}")
