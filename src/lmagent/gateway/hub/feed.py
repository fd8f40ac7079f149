"""Feed: what is recorded in all sessions, in the order in which the index has read it."""

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
from lmagent.gateway.http.errors import Refusal
from lmagent.gateway.hub.fan import Fan, Reader, Watching
from lmagent.gateway.hub.frames import Frame, framed
from lmagent.store.index import SessionIndex
from lmagent.store.log import EVENTS
from lmagent.store.numbered import EventPlace as EventRow

PAUSE = 0.1
"""Seconds between two looks at the logs, at least: what is recorded faster goes out together."""

LOOK = 1.0
"""Seconds between two looks where nothing is recorded in this process."""

BATCH = 256
"""Events that are read at a time."""


BEGINNING = "0"
"""The cursor before all events, of any index."""


class EventPlace(Struct, frozen=True):
    """A recorded event of any session: where a watcher goes on from, and the event as JSON."""

    cursor: str
    data: bytes


class Following:
    """A watcher of all sessions: an iterator of numbered events."""

    def __init__(self, watching: Watching, mark: str) -> None:
        self._watching = watching
        self._mark = mark

    def __aiter__(self) -> Following:
        return self

    async def __anext__(self) -> EventPlace:
        """The next event."""
        return self._named(await anext(self._watching))

    async def take(self) -> list[EventPlace]:
        """All events that there are now, waiting for the first; none where there will be no more."""
        return [self._named(frame) for frame in await self._watching.take()]

    def _named(self, frame: Frame) -> EventPlace:
        return EventPlace(f"{self._mark}-{frame.seq}", frame.data)


class Feed:
    """The stream of all sessions.

    Args:
        root: the folder of the sessions.
    """

    def __init__(self, root: Path) -> None:
        self.fan = Fan(self._reader, _nothing)
        self._root = root
        self._mark: str = ""
        self._news = anyio.Event()

    def notice(self, event: ev.Event) -> None:
        """Something happened in a session that is open here."""
        if event.seq and self.fan.watchers:
            self._news.set()

    async def run(self) -> None:
        """Look for what is recorded, for as long as somebody watches, until cancelled."""
        while True:
            if not self.fan.watchers:
                await self._news.wait()
            with anyio.move_on_after(LOOK):
                await self._news.wait()
            self._news = anyio.Event()
            with suppress(LmagentError, OSError):  # the index cannot be read now; who asks for something is told why
                await self._look()
            await anyio.sleep(PAUSE)

    async def _look(self) -> None:
        """Hand on what the logs have gained."""
        while self.fan.watchers:
            mark, last, places = await anyio.to_thread.run_sync(self._gained, self.fan.last)
            self._take_mark(mark, last)
            for frame in await anyio.to_thread.run_sync(self._frames, places):
                self.fan.push(frame)
            if places:
                self.fan.last = max(self.fan.last, places[-1].number)
            if len(places) < BATCH:
                return

    def _take_mark(self, mark: str, last: int) -> None:
        """An index that was filled anew counts anew: whoever watched the old one has to come back."""
        if mark != self._mark:
            self.fan.end()
            self.fan, self._mark = Fan(self._reader, _nothing, last), mark

    @asynccontextmanager
    async def watch(self, after: str) -> AsyncGenerator[Following]:
        """A watcher from a cursor on, which may be `BEGINNING`; from now on without one.

        Raises:
            Refusal: the cursor is none of this index.
        """
        mark, last, _ = await anyio.to_thread.run_sync(self._gained, None)
        self._take_mark(mark, last)
        async with self.fan.watch(self._number(after, last)) as watching:
            self._news.set()
            yield Following(watching, mark)

    async def check(self, cursor: str) -> None:
        """Refuse a cursor that is none of this index.

        Raises:
            Refusal: it is not.
        """
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
            fix = "GET /api/events without a cursor goes on from now, after=0 from the beginning"
            raise Refusal(400, "unknown_cursor", f"{cursor[:80]!r} is no cursor of this index", fix=fix)
        return int(number)

    # --- reading, in threads ----------------------------------------------------------------------------------------

    def _gained(self, after: int | None) -> tuple[str, int, list[EventRow]]:
        """The numbering's mark, the last number, and the next places behind `after`; None wants none."""
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

    def _frames(self, places: Sequence[EventRow]) -> list[Frame]:
        """The events themselves, from the logs; what was deleted meanwhile is left out."""
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
    """What a watcher is given beside what is recorded."""
    return []
