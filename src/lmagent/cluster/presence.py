"""Presence: this process's row in the table `process`, and the heartbeat that keeps its sessions its own."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress

from lmagent import __version__
from lmagent.cluster.database import Connection, Database, only_row
from lmagent.core.errors import StoreError

BEAT = 2.0
"""Seconds between two heartbeats. The lease, 6 s, is in the function `is_alive` of the schema."""

_FORGET_DEAD = "DELETE FROM process WHERE beat < clock_timestamp() - interval '1 day'"
_JOIN = "INSERT INTO process (kind, name, version, workspaces) VALUES (%s, %s, %s, %s) RETURNING id"
_BEAT = "UPDATE process SET beat = clock_timestamp() WHERE id = %s RETURNING draining, extract(epoch FROM beat)::float8"
_RELEASE = "UPDATE session SET owner = NULL WHERE number = %s AND epoch = %s AND owner = %s"


class Presence:
    """This process among those of the cluster. The row is made by the first use of `id`.

    Args:
        beat: seconds between two heartbeats.

    Attributes:
        kind: worker, gateway or terminal.
        workspaces: the names of the workspaces whose jobs it does.
    """

    def __init__(self, database: Database, *, beat: float = BEAT) -> None:
        self.database = database
        self._pause = beat
        self.kind = "terminal"
        self.name = f"{os.uname().nodename}:{os.getpid()}"
        self.workspaces: list[str] = []
        self.is_draining = False
        """Whether `lmagent cluster drain` asks this process to end; known after the next heartbeat."""
        self.written: set[int] = set()
        """Numbers of the sessions that are open for writing here."""
        self.opening = threading.Lock()
        """Held by the thread that opens a session."""
        self._id = 0
        self._left: list[tuple[int, int, int]] = []  # sessions that could not be released: number, epoch, owner
        self._lock = threading.Lock()
        self._ends = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def id(self) -> int:
        """Return the number of this process. Raise StoreError if the database cannot be used."""
        with self._lock:
            if not self._id:
                self._id = self.database.run(self._join)
            if self._thread is None:
                self._ends.clear()
                self._thread = threading.Thread(
                    target=self.database.repeat,
                    args=(self._beat, self._pause, self._ends),
                    name="heartbeat",
                    daemon=True,
                )
                self._thread.start()
            return self._id

    @property
    def joined(self) -> int:
        """Return the number of this process if it has one; 0 if it has written nothing yet."""
        return self._id

    def release(self, number: int, epoch: int, owner: int) -> None:
        """Let other processes open a session. If the database cannot be reached now, a heartbeat does it later."""
        self.written.discard(number)
        try:
            self.database.run(lambda connection: connection.execute(_RELEASE, (number, epoch, owner)), patience=0)
        except StoreError:
            self._left.append((number, epoch, owner))

    def close(self) -> None:
        """Leave the cluster: its sessions are free at once."""
        self._ends.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join(BEAT)
        id, self._id = self._id, 0
        if id:
            with suppress(StoreError):
                self.database.run(
                    lambda connection: connection.execute("DELETE FROM process WHERE id = %s", (id,)), patience=0
                )

    def _join(self, connection: Connection) -> int:
        connection.execute(_FORGET_DEAD)
        (id,) = only_row(connection, _JOIN, (self.kind, self.name, __version__, self.workspaces))
        return int(id)

    def _beat(self, connection: Connection) -> None:
        asked = time.time()
        row = connection.execute(_BEAT, (self._id,)).fetchone()
        if row is None:  # this process was stopped for so long that its row was deleted, and its sessions are free
            self._id = self._join(connection)
        else:
            self.is_draining = bool(row[0])
            self.database.compare_clocks(asked, float(row[1]))
        while self._left:
            connection.execute(_RELEASE, self._left[-1])
            self._left.pop()
