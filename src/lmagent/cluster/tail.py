"""Tails: continue to read a session's log when a notification says that it has grown."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import anyio

from lmagent.cluster.database import Connection, Database
from lmagent.cluster.listening import EVENTS, Listener
from lmagent.cluster.reading import some_lines
from lmagent.core.events import DurableEvent
from lmagent.store.port import LogMark
from lmagent.store.scan import log_line

LOOK = 10.0
"""Seconds after which a tail looks by itself: a dead connection is noticed only after as long."""

_NUMBER = "SELECT number FROM session WHERE workspace = %s AND id = %s"
# From then on, its events send notifications, which otherwise would wake the listeners of all processes for nothing.
_WATCH = (
    "UPDATE session SET watched = clock_timestamp() + interval '30 seconds' WHERE workspace = %s AND id = %s "
    "RETURNING number"
)


class News:
    """Counts the notifications about each session of a workspace."""

    def __init__(self, listener: Listener, workspace: str) -> None:
        self._listener = listener
        self._workspace = workspace
        self._counts: dict[str, int] = {}
        self._lost = 0  # times when some may have been lost
        self._waiters: dict[str, set[Callable[[], None]]] = {}
        self._lock = threading.Lock()
        self._is_heard = False

    def of(self, session: str) -> tuple[int, int]:
        """Return a value that changes with each notification about a session."""
        self._hear()
        return self._lost, self._counts.get(session, 0)

    async def wait(self, session: str, seen: tuple[int, int], seconds: float) -> None:
        """Wait until the value is no longer `seen`, at most so many seconds."""
        news, loop = asyncio.Event(), asyncio.get_running_loop()

        def wake() -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(news.set)

        with self._lock:
            self._waiters.setdefault(session, set()).add(wake)
        try:
            if self.of(session) == seen:
                with anyio.move_on_after(seconds):
                    await news.wait()
        finally:
            with self._lock:
                self._waiters[session].discard(wake)
                if not self._waiters[session]:
                    del self._waiters[session]

    def _hear(self) -> None:
        with self._lock:
            if self._is_heard:
                return
            self._is_heard = True
        self._listener.watch(EVENTS, self._take)

    def _take(self, payload: str) -> None:
        with self._lock:
            if not payload:
                self._lost += 1
                wakes = [wake for waiters in self._waiters.values() for wake in waiters]
            else:
                _, session, workspace = payload.split(" ", 2)
                if workspace != self._workspace:
                    return
                self._counts[session] = self._counts.get(session, 0) + 1
                wakes = list(self._waiters.get(session, ()))
        for wake in wakes:
            wake()


class ClusterTail:
    """Continues to read a session's log after the event `after`. The session may be deleted, or begin meanwhile."""

    def __init__(self, database: Database, news: News, place: tuple[str, str], after: int, mark: LogMark) -> None:
        self.after = max(after, mark.seq)
        self.mark: LogMark = mark
        self.is_gone = False
        self._database = database
        self._news = news
        self._place = place
        self._seen: tuple[int, int] | None = None  # the news when the end of the log was reached
        self._looked = 0.0
        self._number = 0  # the session's; another one if a new session is in its place
        self._asked = 0.0  # monotonic seconds when notifications were asked for

    @property
    def has_news(self) -> bool:
        """Whether there was a notification since the end of the log was reached, or no look for a while."""
        return self._news.of(self._place[1]) != self._seen or time.monotonic() - self._looked > LOOK

    def read(self) -> list[DurableEvent]:
        """Return the next events; empty at the end of the log. Raise StoreError."""
        found: list[DurableEvent] = []
        while not found:
            news = self._news.of(self._place[1])  # before the look, since an event may arrive during it
            batch = self._database.run(self._look)
            if not batch:
                self._seen, self._looked = news, time.monotonic()
                return found
            for seq, raw in batch:
                self.after = seq
                event = log_line(seq, 0, raw).event
                found += [event] if event is not None else []
            self.mark = LogMark(self.after)
        return found

    def _look(self, connection: Connection) -> list[tuple[int, bytes]]:
        """Read the next lines, after asking for notifications of those that follow."""
        now = time.monotonic()
        row = connection.execute(_NUMBER, self._place).fetchone()
        if row is not None and (row[0] != self._number or now - self._asked > LOOK):
            row = connection.execute(_WATCH, self._place).fetchone()
            self._asked = now
        self.is_gone = row is None
        self._number = int(row[0]) if row is not None else 0
        return some_lines(connection, self._number, self.after) if row is not None else []

    async def wait(self, seconds: float) -> None:
        """Wait for a notification, at most so many seconds."""
        if self._seen is not None:
            await self._news.wait(self._place[1], self._seen, seconds)
