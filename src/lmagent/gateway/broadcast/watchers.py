"""Stream: a stream of frames for many watchers, each from where it left off.

A watcher reads from disk until it has caught up, and receives each new frame from then on. There is no await between
the check that it has caught up and the first frame, so there is no gap; frames that it already has are not repeated.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import msgspec
from msgspec import Struct

from lmagent.core import events as ev

# Frames that may wait for a watcher; a watcher that does not read is cut off, and can resume from its last frame.
MOST_FRAMES = 4096

MOST_BYTES = 8_000_000  # the same in bytes


class Frame(Struct, frozen=True):
    """An outgoing event as JSON, encoded once for all watchers; `cursor` is its place among those of all sessions."""

    seq: int
    data: bytes
    cursor: str = ""


Reader = Callable[[], Awaitable[Sequence[Frame]]]  # Returns the next recorded frames on each call; empty at the end


def framed(event: ev.Event, session: str) -> Frame:
    """Return the frame of an event in the stream of `session`."""
    if isinstance(event, ev.SessionCreated | ev.SessionForked):  # a copy still names the session it was copied from
        return Frame(event.seq, ev.encode(msgspec.structs.replace(event, session=session)))
    try:
        line = ev.encode(event)
    except UnicodeEncodeError:  # half of a surrogate pair, as a model may write
        line = msgspec.json.encode(_whole(msgspec.to_builtins(event)))
    return Frame(event.seq, b'%b,"session":"%b"}' % (line[:-1], session.encode()))


def _whole(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        pairs: dict[Any, Any] = value  # pyright: ignore[reportUnknownVariableType]
        return {_whole(key): _whole(item) for key, item in pairs.items()}
    if isinstance(value, list | tuple):
        items: list[Any] = list(value)  # pyright: ignore[reportUnknownArgumentType]
        return [_whole(item) for item in items]
    return value


class Watcher:
    """One watcher's position in a stream; `lagged`: it was cut off because it did not read."""

    def __init__(self, stream: Stream, after: int) -> None:
        self.at = after
        self.lagged = False
        self._stream = stream
        self._read = stream.reader(after)
        self._queue: list[Frame] = []
        self._size = 0
        self._live = False
        self._news = anyio.Event()

    async def take(self) -> list[Frame]:
        """Return all available frames after waiting for the first; empty at the end, or if it was cut off."""
        while True:
            if self._queue:
                frames, self._queue, self._size = self._queue, [], 0
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
            self._stream.watchers.discard(self)
        self._news.set()

    def fall_behind(self) -> None:
        """Read from disk again: events were recorded that were not pushed."""
        self._live = False
        self._news.set()

    def wake(self) -> None:
        """Let it notice that the stream is over."""
        self._news.set()


class Stream:
    """A stream of frames; `last` is the `seq` of the last recorded one."""

    def __init__(self, last: int = 0) -> None:
        self.last = last
        self.is_over = False
        self.watchers: set[Watcher] = set()

    def reader(self, after: int) -> Reader:
        """Return a reader of the frames recorded after a `seq`."""
        raise NotImplementedError

    def joined(self) -> list[Frame]:
        """Flush waiting text, then return the unrecorded frames for a watcher that has caught up."""
        return []

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

    @asynccontextmanager
    async def watch(self, after: int) -> AsyncGenerator[Watcher]:
        """Watch the frames after `after`."""
        watcher = Watcher(self, after)
        self.watchers.add(watcher)
        try:
            yield watcher
        finally:
            self.watchers.discard(watcher)
