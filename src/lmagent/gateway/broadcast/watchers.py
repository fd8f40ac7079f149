"""Stream: a stream of frames for many watchers, each from where it left off.

A watcher reads from disk until it has caught up, and receives each new frame from then on. There is no await between
the check that it has caught up and the first frame, so there is no gap; frames that it already has are not repeated.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import anyio

from lmagent.gateway.broadcast.frames import Frame

MOST_FRAMES = 4096
"""Frames that may wait for a watcher; a watcher that does not read is cut off, and can resume from its last frame."""

MOST_BYTES = 8_000_000
"""The same in bytes."""

Reader = Callable[[], Awaitable[Sequence[Frame]]]
"""Returns the next recorded frames on each call; empty at the end."""


class Watcher:
    """One watcher's position in a stream: an iterator of frames that ends with the stream or when it is cut off.

    Attributes:
        at: `seq` of the last recorded frame that it received.
        lagged: it was cut off because it did not read.
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
        if not self._queue:
            self._queue.extend(await self.take())
            if not self._queue:
                raise StopAsyncIteration
        return self._queue.popleft()

    async def take(self) -> list[Frame]:
        """Return all available frames after waiting for the first; empty at the end of the stream."""
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
        elif self._stream.last == there:  # all recorded frames are read
            frames = self._stream.joined()  # also flushes waiting text to the other watchers
            self._live = True
            self.at = max(self.at, there)
        return frames

    # --- for the stream -----------------------------------------------------------------------------------------------

    def put(self, frame: Frame) -> None:
        """Queue a frame, unless the watcher is still catching up or already has it."""
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
        """Read from disk again: events were recorded that were not pushed."""
        self._live = False
        self._news.set()

    def wake(self) -> None:
        """Let it notice that the stream is over."""
        self._news.set()


class Stream:
    """A stream of frames.

    Args:
        reader: makes a reader of the frames recorded after a `seq`.
        joined: flushes waiting text, then returns the unrecorded frames for a watcher that has caught up.
        last: `seq` of the last recorded frame.
    """

    def __init__(self, reader: Callable[[int], Reader], joined: Callable[[], list[Frame]], last: int = 0) -> None:
        self.reader = reader
        self.joined = joined
        self.last = last
        self.is_over = False
        self.watchers: set[Watcher] = set()

    def push(self, frame: Frame) -> None:
        """Hand a frame to all watchers."""
        self.last = frame.seq or self.last
        for watcher in tuple(self.watchers):
            watcher.put(frame)

    def moved(self, last: int) -> None:
        """Let all watchers read from disk if more is recorded than was pushed; `last` is the last recorded `seq`."""
        if last != self.last:
            self.last = last
            for watcher in self.watchers:
                watcher.fall_behind()

    def end(self) -> None:
        """End the stream; frames in the queues are still delivered."""
        self.is_over = True
        for watcher in self.watchers:
            watcher.wake()

    def leave(self, watcher: Watcher) -> None:
        self.watchers.discard(watcher)

    @asynccontextmanager
    async def watch(self, after: int) -> AsyncGenerator[Watcher]:
        """Watch the frames after `after`."""
        watcher = Watcher(self, after)
        self.watchers.add(watcher)
        try:
            yield watcher
        finally:
            self.leave(watcher)
