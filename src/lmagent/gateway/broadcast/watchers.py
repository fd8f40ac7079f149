"""Stream: one stream of frames for any number of watchers, each from where it left off.

A watcher reads what is on disk until it has caught up, and is handed everything from then on. Nothing is awaited
between the look that finds it has caught up and the moment from which it is handed frames, so there is no gap; a frame
that it has already is not given to it again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import anyio

from lmagent.gateway.broadcast.frames import Frame

MOST_FRAMES = 4096
"""Frames that may wait for a watcher; who does not read is cut off, and comes back with the last one it has."""

MOST_BYTES = 8_000_000
"""The same in bytes."""

Reader = Callable[[], Awaitable[Sequence[Frame]]]
"""Gives the next recorded frames, each time from where it left off; none where there are no more."""


class Watcher:
    """One watcher's place in a stream: an iterator of frames that ends with the stream, or where it is cut off.

    Attributes:
        at: `seq` of the last recorded frame that it was given.
        lagged: it was cut off, because it did not read.
    """

    def __init__(self, stream: Stream, after: int) -> None:
        self.at = after
        self.lagged = False
        self._stream = stream
        self._read = stream.reader(after)
        self._queue: deque[Frame] = deque()
        self._size = 0
        self._live = False
        self._news = anyio.Event()

    def __aiter__(self) -> Watcher:
        return self

    async def __anext__(self) -> Frame:
        """The next frame."""
        if not self._queue:
            self._queue.extend(await self.take())
            if not self._queue:
                raise StopAsyncIteration
        return self._queue.popleft()

    async def take(self) -> list[Frame]:
        """All frames that there are now, waiting for the first; none where there will be no more."""
        while True:
            if self._queue:
                frames = list(self._queue)
                self._queue.clear()
                self._size = 0
                return frames
            if self.lagged or self._stream.is_over:
                return []
            if self._live:
                self._news = anyio.Event()
                await self._news.wait()
            elif frames := await self._catch_up():
                return frames

    async def _catch_up(self) -> list[Frame]:
        there = self._stream.last
        frames = [frame for frame in await self._read() if frame.seq > self.at]
        if frames:
            self.at = frames[-1].seq
        elif self._stream.last == there:  # all that can be read has been
            frames = self._stream.joined()  # which hands the others what waits, and gives it to this one with the rest
            self._live = True
            self.at = max(self.at, there)
        return frames

    # --- for the stream -----------------------------------------------------------------------------------------------

    def put(self, frame: Frame) -> None:
        """Hand it a frame, unless it is not there yet, or has it."""
        if not self._live or 0 < frame.seq <= self.at:
            return
        self.at = frame.seq or self.at
        self._queue.append(frame)
        self._size += len(frame.data)
        if len(self._queue) > MOST_FRAMES or self._size > MOST_BYTES:
            self.lagged = True
            self._queue.clear()
            self._stream.leave(self)
        self._news.set()

    def fall_behind(self) -> None:
        """Let it read on from disk: something was recorded that nobody handed it."""
        self._live = False
        self._news.set()

    def wake(self) -> None:
        """Let it see that the stream is over."""
        self._news.set()


class Stream:
    """One stream.

    Args:
        reader: gives a reader of what is recorded after a `seq`.
        joined: what somebody who has caught up is given beside it; it hands on first what waits to be handed on.
        last: `seq` of the last recorded frame.

    Attributes:
        is_over: there will be no more.
        watchers: who watches.
    """

    def __init__(self, reader: Callable[[int], Reader], joined: Callable[[], list[Frame]], last: int = 0) -> None:
        self.reader = reader
        self.joined = joined
        self.last = last
        self.is_over = False
        self.watchers: set[Watcher] = set()

    def push(self, frame: Frame) -> None:
        """Hand a frame to everybody."""
        self.last = frame.seq or self.last
        for watcher in tuple(self.watchers):
            watcher.put(frame)

    def moved(self, last: int) -> None:
        """Let everybody read on from disk, where more is recorded than was handed on.

        Args:
            last: `seq` of the last recorded frame.
        """
        if last != self.last:
            self.last = last
            for watcher in self.watchers:
                watcher.fall_behind()

    def end(self) -> None:
        """There will be no more; what was handed on is still given out."""
        self.is_over = True
        for watcher in self.watchers:
            watcher.wake()

    def leave(self, watcher: Watcher) -> None:
        """Hand a watcher nothing more."""
        self.watchers.discard(watcher)

    @asynccontextmanager
    async def watch(self, after: int) -> AsyncGenerator[Watcher]:
        """A watcher that has everything up to `after`."""
        watcher = Watcher(self, after)
        self.watchers.add(watcher)
        try:
            yield watcher
        finally:
            self.leave(watcher)
