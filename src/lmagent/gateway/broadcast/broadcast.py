"""Gives each watcher the recorded events of a session, then its live events, each once."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
import anyio.abc
import anyio.to_thread

from lmagent.app.runner import Runner
from lmagent.cluster import without_blocking
from lmagent.core import events as ev
from lmagent.core.errors import LmagentError
from lmagent.engine.session import Session
from lmagent.gateway.broadcast.stream import Flusher, Frame, Reader, SessionStream, Stream, Watcher, framed
from lmagent.gateway.http.errors import Refusal
from lmagent.store.port import EventFeed, EventPlace, SessionStore


class Broadcast:
    """The streams of the sessions that are open here or watched, and the feed of all sessions together.

    Attributes:
        live: brings a watched session's text from the process that has it open.
    """

    def __init__(self, runner: Runner) -> None:
        self.streams: dict[str, SessionStream] = {}
        self.feed = FeedBroadcast(runner.host.store)
        self._runner = runner
        self._store = runner.host.store
        self._flusher = Flusher()
        self._tasks: anyio.abc.TaskGroup | None = None
        self.live: Callable[[SessionStream], Coroutine[Any, Any, None]] | None = None
        runner.host.opened = self._session_opened
        runner.host.released = self._session_released
        runner.is_watched = self.is_watched

    async def run(self) -> None:
        async with anyio.create_task_group() as self._tasks:
            self._tasks.start_soon(self.feed.run)

    def end_all(self) -> None:
        for stream in list(self.streams.values()):
            stream.end()
        self.feed.stream.end()

    def end(self, session: str) -> None:
        """End the stream of a session that was deleted or cleared."""
        if (stream := self.streams.pop(session, None)) is not None:
            stream.end()

    def is_watched(self, session: str) -> bool:
        return session in self.streams and bool(self.streams[session].watchers)

    @asynccontextmanager
    async def watch(self, session: str, after: int = 0) -> AsyncGenerator[Watcher]:
        """Watch a session from the event after `after` on."""
        await self._runner.ready()
        await without_blocking(self._runner.host.settings, lambda: self._runner.require(session))
        stream = self.stream(session)
        if not stream.is_heard and (here := self._runner.host.sessions.get(session)) is not None:
            stream.listen(here)
        async with stream.watch(after) as watcher:
            if not stream.is_heard:
                self._follow(stream)
            try:
                yield watcher
            finally:
                self._runner.unwatched(session)
                self._forget(session)

    @asynccontextmanager
    async def watch_all(self, after: str = "") -> AsyncGenerator[Watcher]:
        """Watch all sessions from a cursor on, or from now on."""
        await self._runner.ready()
        async with self.feed.watch(after) as watcher:
            yield watcher

    def stream(self, session: str) -> SessionStream:
        """Return the stream of a session; a new one if the last has ended and a slow watcher still reads it."""
        known = self.streams.get(session)
        if known is None or known.is_over:
            if known is not None:
                known.deafen()
            known = self.streams[session] = SessionStream(session, self._store, self._flusher)
        return known

    def _session_opened(self, session: Session) -> None:
        self.stream(session.state.session).listen(session)
        session.listen(self.feed.notice)

    def _session_released(self, session: str) -> None:
        if (stream := self.streams.get(session)) is not None:
            stream.deafen()
            if stream.watchers and not self._runner.is_ending:
                self._follow(stream)
            else:
                self._forget(session)

    def _follow(self, stream: SessionStream) -> None:
        if self._tasks is not None and not stream.is_followed:
            self._tasks.start_soon(stream.follow)
            if self.live is not None:
                self._tasks.start_soon(self.live, stream)

    def _forget(self, session: str) -> None:
        stream = self.streams.get(session)
        if stream is not None and not (stream.watchers or stream.is_heard):
            self.streams.pop(session, None)


# --- all sessions -----------------------------------------------------------------------------------------------------


PAUSE = 0.1  # shortest time between two reads of the logs, in seconds: faster events are sent together
LOOK = 1.0  # seconds between two reads if no events are recorded in this process
BATCH = 256  # events per read


BEGINNING = "0"  # the cursor before all events of any numbering


class FeedStream(Stream):
    """The stream of a numbering; `mark` names it: the numbers of an index change when it is rebuilt."""

    def __init__(self, store: SessionStore, mark: str = "", last: int = 0) -> None:
        super().__init__(last)
        self.mark = mark
        self._store = store

    def cursor(self, number: int) -> str:
        return f"{self.mark}-{number}"

    def reader(self, after: int) -> Reader:
        number = after

        def read() -> list[Frame]:
            nonlocal number
            with self._store.feed() as feed:
                while places := feed.numbered(number, BATCH):
                    number = places[-1].number
                    if frames := self.frames(feed, places):
                        return frames
            return []

        async def next_frames() -> Sequence[Frame]:
            return await anyio.to_thread.run_sync(read)

        return next_frames

    def frames(self, feed: EventFeed, places: Sequence[EventPlace]) -> list[Frame]:
        """Read the events from the logs, in a thread; deleted ones are left out."""
        return [
            Frame(place.number, framed(event, place.session).data, self.cursor(place.number))
            for place, event in feed.events(places)
        ]


class FeedBroadcast:
    """Gives each watcher of all sessions the recorded events from its cursor on."""

    def __init__(self, store: SessionStore) -> None:
        self.stream = FeedStream(store)
        self._store = store
        self._news = anyio.Event()

    def notice(self, event: ev.Event) -> None:
        """Note that an event of an open session was recorded."""
        if event.seq and self.stream.watchers:
            self._news.set()

    async def run(self) -> None:
        """Read new events while there are watchers, until cancelled."""
        while True:
            if not self.stream.watchers:
                await self._news.wait()
            with anyio.move_on_after(LOOK):
                await self._news.wait()
            self._news = anyio.Event()
            with suppress(LmagentError, OSError):  # if the events cannot be read now, the next request reports it
                await self._look()
            await anyio.sleep(PAUSE)

    async def _look(self) -> None:
        while self.stream.watchers:
            last, places = await self._gain(self.stream.last)
            stream = self.stream
            for frame in await anyio.to_thread.run_sync(self._frames, places):
                stream.push(frame)
            if places:
                stream.last = max(stream.last, places[-1].number)
            if not places or stream.last >= last:
                return

    def _frames(self, places: Sequence[EventPlace]) -> list[Frame]:
        with self._store.feed() as feed:
            return self.stream.frames(feed, places)

    async def _gain(self, after: int | None) -> tuple[int, list[EventPlace]]:
        """Refresh the numbering; return its last number, and the next places after `after` (no places for None).

        If the events were numbered anew, a new stream begins: the numbers changed, so watchers have to reconnect.
        """
        mark, last, places = await anyio.to_thread.run_sync(_gained, self._store, after)
        if mark == self.stream.mark:
            return last, places
        self.stream.end()
        self.stream = FeedStream(self._store, mark, last)
        return last, []

    @asynccontextmanager
    async def watch(self, after: str) -> AsyncGenerator[Watcher]:
        """Watch from a cursor on, which may be `BEGINNING`; without one, from now on."""
        number = await self.check(after)  # this may begin a new stream
        async with self.stream.watch(number) as watching:
            self._news.set()
            yield watching

    async def check(self, cursor: str) -> int:
        """Return the number of a cursor, or raise `Refusal` if it is not of this numbering."""
        last, _ = await self._gain(None)
        if cursor in ("", BEGINNING):
            return 0 if cursor else last
        mark, _, number = cursor.partition("-")
        if mark != self.stream.mark or not (number.isascii() and number.isdigit()) or int(number[:19]) > last:
            fix = "GET /api/events without a cursor sends new events only, after=0 all events"
            raise Refusal(400, "unknown_cursor", f"{cursor[:80]!r} is no cursor of these events", fix=fix)
        return int(number)


def _gained(store: SessionStore, after: int | None) -> tuple[str, int, list[EventPlace]]:
    with store.feed() as feed:
        feed.refresh()
        mark, last = feed.numbering()
        return mark, last, [] if after is None else feed.numbered(after, BATCH)
