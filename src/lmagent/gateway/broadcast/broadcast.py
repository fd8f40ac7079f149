"""Gives each watcher the recorded events of a session, then its live events, each once."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import anyio.abc

from lmagent.app.runner import Runner
from lmagent.engine.session import Session
from lmagent.gateway.broadcast.index_feed import IndexFeed
from lmagent.gateway.broadcast.stream import Flusher, SessionStream
from lmagent.gateway.broadcast.watchers import Watcher
from lmagent.store.log import EVENTS


class Broadcast:
    """The streams of the sessions that are open here or watched, and the feed of all sessions together."""

    def __init__(self, runner: Runner) -> None:
        self.streams: dict[str, SessionStream] = {}
        self.feed = IndexFeed(runner.host.store.root)
        self._runner = runner
        self._root = runner.host.store.root
        self._flusher = Flusher()
        self._tasks: anyio.abc.TaskGroup | None = None
        runner.host.opened = self._session_opened
        runner.host.released = self._session_released
        runner.is_watched = self.is_watched

    async def run(self) -> None:
        async with anyio.create_task_group() as self._tasks:
            self._tasks.start_soon(self._flusher.run)
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
        self._runner.require(session)
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
            known = self.streams[session] = SessionStream(session, self._root / session / EVENTS, self._flusher)
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
        if self._tasks is not None:
            self._tasks.start_soon(stream.follow)

    def _forget(self, session: str) -> None:
        stream = self.streams.get(session)
        if stream is not None and not (stream.watchers or stream.is_heard):
            self.streams.pop(session, None)
