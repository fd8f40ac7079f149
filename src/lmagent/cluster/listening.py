"""Listening for notifications: one connection and one thread for all watchers of a process.

A notification only says where to look. After a lost connection each watcher is woken to look for itself, and while it
is lost, once a second.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable
from contextlib import suppress

import psycopg

from lmagent.cluster.database import Connection, Database
from lmagent.core.errors import StoreError

EVENTS = "lmagent_event"
"""The channel of new events. A payload is `SEQ SESSION WORKSPACE`."""

PAUSE = 1.0
"""Seconds between two attempts to connect."""

Wake = Callable[[str], None]
"""Receives the payload of a notification, in the listener's thread; an empty one if some may have been lost."""


class Listener:
    """Calls watchers of channels. The first watcher starts the thread, which is a daemon."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._watchers: dict[str, list[Wake]] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._changed = os.pipe()  # read end, write end: wakes the thread
        self._is_closed = False

    def watch(self, channel: str, wake: Wake) -> Callable[[], None]:
        """Call `wake` for each notification of a channel from now on; return the function that ends it.

        A first watcher of a channel is woken once when its notifications begin to arrive.
        """
        with self._lock:
            self._watchers.setdefault(channel, []).append(wake)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="listener", daemon=True)
                self._thread.start()
        self._poke()

        def end() -> None:
            with self._lock:
                self._watchers[channel].remove(wake)

        return end

    def close(self) -> None:
        self._is_closed = True
        self._poke()
        if self._thread is not None:
            self._thread.join(PAUSE)

    def _poke(self) -> None:
        with suppress(OSError):
            os.write(self._changed[1], b".")

    def _run(self) -> None:
        while not self._is_closed:
            with suppress(StoreError, psycopg.Error, OSError), self._database.connect(patience=0) as connection:
                self._listen(connection)
            self._wake_all()
            if not self._is_closed:
                self._wait(PAUSE)

    def _listen(self, connection: Connection) -> None:
        heard: set[str] = set()
        while not self._is_closed:
            with self._lock:
                channels = set(self._watchers)
            for channel in channels - heard:
                connection.execute(f'LISTEN "{channel}"'.encode())
                heard.add(channel)
                self._wake(channel, "")
            for note in connection.notifies(timeout=0):
                self._wake(note.channel, note.payload)
            self._wait(None, connection.fileno())

    def _wait(self, seconds: float | None, *others: int) -> None:
        ready, _, _ = select.select([self._changed[0], *others], [], [], seconds)
        if self._changed[0] in ready:
            os.read(self._changed[0], 4096)

    def _wake_all(self) -> None:
        for channel in list(self._watchers):
            self._wake(channel, "")

    def _wake(self, channel: str, payload: str) -> None:
        with self._lock:
            wakes = list(self._watchers.get(channel, ()))
        for wake in wakes:
            wake(payload)
