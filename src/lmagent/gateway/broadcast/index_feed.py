"""IndexFeed: the recorded events of all sessions, in the order in which the index has read them."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import anyio.to_thread
from msgspec import Struct

from lmagent.core import events as ev
from lmagent.core.errors import LmagentError
from lmagent.gateway.broadcast.frames import Frame, framed
from lmagent.gateway.broadcast.watchers import Reader, Stream, Watcher
from lmagent.gateway.http.errors import Refusal
from lmagent.store.index import EventPlace, SessionIndex
from lmagent.store.log import EVENTS

PAUSE = 0.1
"""Shortest time between two reads of the logs, in seconds: faster events are sent together."""

LOOK = 1.0
"""Seconds between two reads if no events are recorded in this process."""

BATCH = 256
"""Events per read."""


BEGINNING = "0"
"""The cursor before all events of any index."""


class Numbered(Struct, frozen=True):
    """A recorded event of any session as JSON, and the cursor from which a watcher resumes."""

    cursor: str
    data: bytes


class FeedWatcher:
    """A watcher of all sessions: an iterator of numbered events."""

    def __init__(self, watching: Watcher, mark: str) -> None:
        self._watching = watching
        self._mark = mark

    def __aiter__(self) -> FeedWatcher:
        return self

    async def __anext__(self) -> Numbered:
        return self._named(await anext(self._watching))

    async def take(self) -> list[Numbered]:
        """Return all available events after waiting for the first; empty at the end of the stream."""
        return [self._named(frame) for frame in await self._watching.take()]

    def _named(self, frame: Frame) -> Numbered:
        return Numbered(f"{self._mark}-{frame.seq}", frame.data)


class IndexFeed:
    def __init__(self, root: Path) -> None:
        self.stream = Stream(self._reader, _nothing)
        self._root = root
        self._mark: str = ""
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
            with suppress(LmagentError, OSError):  # if the index cannot be read now, the next request reports it
                await self._look()
            await anyio.sleep(PAUSE)

    async def _look(self) -> None:
        while self.stream.watchers:
            mark, last, places = await anyio.to_thread.run_sync(self._gained, self.stream.last)
            self._take_mark(mark, last)
            for frame in await anyio.to_thread.run_sync(self._frames, places):
                self.stream.push(frame)
            if places:
                self.stream.last = max(self.stream.last, places[-1].number)
            if len(places) < BATCH:
                return

    def _take_mark(self, mark: str, last: int) -> None:
        """Begin a new stream if the index was rebuilt: its numbers changed, so watchers have to reconnect."""
        if mark != self._mark:
            self.stream.end()
            self.stream, self._mark = Stream(self._reader, _nothing, last), mark

    @asynccontextmanager
    async def watch(self, after: str) -> AsyncGenerator[FeedWatcher]:
        """Watch from a cursor on, which may be `BEGINNING`; without one, from now on.

        Raises:
            Refusal: the cursor is not of this index.
        """
        mark, last, _ = await anyio.to_thread.run_sync(self._gained, None)
        self._take_mark(mark, last)
        async with self.stream.watch(self._number(after, last)) as watching:
            self._news.set()
            yield FeedWatcher(watching, mark)

    async def check(self, cursor: str) -> None:
        """Raise `Refusal` for a cursor that is not of this index."""
        mark, last, _ = await anyio.to_thread.run_sync(self._gained, None)
        self._take_mark(mark, last)
        self._number(cursor, last)

    def _number(self, cursor: str, last: int) -> int:
        if not cursor:
            return last
        if cursor == BEGINNING:
            return 0
        mark, _, number = cursor.partition("-")
        if mark != self._mark or not (number.isascii() and number.isdigit()) or int(number[:19]) > last:
            fix = "GET /api/events without a cursor sends new events only, after=0 all events"
            raise Refusal(400, "unknown_cursor", f"{cursor[:80]!r} is no cursor of this index", fix=fix)
        return int(number)

    # --- reading, in threads ----------------------------------------------------------------------------------------

    def _gained(self, after: int | None) -> tuple[str, int, list[EventPlace]]:
        """Return the index's mark, its last number, and the next places after `after` (no places for None)."""
        with SessionIndex(self._root) as index:
            index.refresh()
            mark, last = index.numbering()
            return mark, last, [] if after is None else index.numbered(after, BATCH)

    def _reader(self, after: int) -> Reader:
        number = after

        def read() -> list[Frame]:
            nonlocal number
            with SessionIndex(self._root) as index:
                while places := index.numbered(number, BATCH):
                    number = places[-1].number
                    if frames := self._frames(places):
                        return frames
            return []

        async def next_frames() -> Sequence[Frame]:
            return await anyio.to_thread.run_sync(read)

        return next_frames

    def _frames(self, places: Sequence[EventPlace]) -> list[Frame]:
        """Read the events from the logs; deleted ones are left out."""
        files: dict[str, int] = {}
        found: list[Frame] = []
        try:
            for place in places:
                try:
                    if place.session not in files:
                        files[place.session] = os.open(self._root / place.session / EVENTS, os.O_RDONLY)
                    line = os.pread(files[place.session], place.size, place.start)
                    event = ev.decode(line)
                except (OSError, ValueError):
                    continue
                found.append(Frame(place.number, framed(event, place.session).data))
        finally:
            for fd in files.values():
                os.close(fd)
        return found


def _nothing() -> list[Frame]:
    """Return no frames besides the recorded ones."""
    return []
