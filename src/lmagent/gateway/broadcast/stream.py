"""Stream: a stream of frames for many watchers, each from where it left off.

A watcher reads from disk until it has caught up, and receives each new frame from then on. There is no await between
the check that it has caught up and the first frame, so there is no gap; frames that it already has are not repeated.
"""

from __future__ import annotations

import asyncio
import math
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.to_thread
import msgspec
from msgspec import Struct

from lmagent.core import events as ev
from lmagent.core.errors import StoreError
from lmagent.engine.session import Session
from lmagent.store.port import NOWHERE, POLL, LogMark, SessionStore, SessionTail

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
        self._news = asyncio.Event()
        self._alarm: asyncio.TimerHandle | None = None

    @property
    def cursor(self) -> str:
        """Its place among the events of all sessions; empty in the stream of one session."""
        return self._stream.cursor(self.at)

    async def take(self, within: float = math.inf) -> list[Frame] | None:
        """Return all available frames after waiting for the first; empty at the end, or if it was cut off.

        Return None after a silence of so many seconds.
        """
        clock = asyncio.get_running_loop()
        until = clock.time() + within
        while True:
            if self._queue:
                frames, self._queue, self._size = self._queue, [], 0
                return frames
            if self.lagged or self._stream.is_over:
                return []
            if self._live:
                if clock.time() >= until:
                    return None
                self._news.clear()
                # One timer serves many calls: most calls end long before their silence does.
                if until < math.inf and (self._alarm is None or not clock.time() < self._alarm.when() <= until):
                    self.leave()
                    self._alarm = clock.call_at(until, self._news.set)
                await self._news.wait()
            elif frames := await self._catch_up():
                return frames

    def leave(self) -> None:
        """Cancel the timer."""
        if self._alarm is not None:
            self._alarm.cancel()

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


class Stream(ABC):
    """A stream of frames; `last` is the `seq` of the last recorded one."""

    def __init__(self, last: int = 0) -> None:
        self.last = last
        self.is_over = False
        self.watchers: set[Watcher] = set()

    @abstractmethod
    def reader(self, after: int) -> Reader:
        """Return a reader of the frames recorded after a `seq`."""

    def cursor(self, number: int) -> str:
        """Return the cursor of a place in a stream of all sessions; empty in other streams."""
        return ""

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
            watcher.leave()


# --- the stream of one session ----------------------------------------------------------------------------------------


BEAT = 0.015  # seconds within which pieces of text are joined. Users see no difference; a browser draws every 0.016 s.
SLOWEST = 0.5  # seconds between two reads of a log that does not seem to grow
MOST_OUTPUT = 64_000  # characters of a running call's output that a late watcher receives: its end

Key = tuple[str, ...]
Live = ev.EphemeralEvent
Spoken = ev.TextDelta | ev.ThinkingDelta | ev.ToolOutput


class JoinedText(Struct):
    """Text of one kind that arrived: its last event, and the texts of all."""

    event: ev.EphemeralEvent
    texts: list[str]

    def joined(self) -> ev.EphemeralEvent:
        """Return one event with all texts."""
        return _with_text(self.event, "".join(self.texts)) if len(self.texts) > 1 else self.event


class Flusher:
    """Flushes the joined texts of all streams."""

    def __init__(self) -> None:
        self._ready: list[SessionStream] = []
        self._beaten = 0.0

    def wants(self, stream: SessionStream) -> None:
        """Flush a stream with the next beat: at once after a silence."""
        if not self._ready:
            asyncio.get_running_loop().call_at(self._beaten + BEAT, self._beat)
        self._ready.append(stream)

    def _beat(self) -> None:
        self._beaten = asyncio.get_running_loop().time()
        ready, self._ready = self._ready, []
        for stream in ready:
            stream.flush()


class SessionStream(Stream):
    """The stream of one session; `last` is the `seq` of the last event known to be recorded."""

    def __init__(self, session: str, store: SessionStore, flusher: Flusher, last: int = 0) -> None:
        super().__init__(last)
        self.session = session
        self.is_followed = False
        self.recorded = anyio.Event()  # set by the next recorded event
        self._early: list[tuple[int, ev.Event]] = []
        self._store = store
        self._flusher = flusher
        self._mark: LogMark = NOWHERE
        self._waiting: dict[Key, JoinedText] = {}
        self._said: dict[Key, JoinedText] = {}
        self._asked: dict[str, ev.SubagentEvent] = {}
        self._stop: Callable[[], None] | None = None

    @property
    def is_heard(self) -> bool:
        """Whether the session is open here and listened to."""
        return self._stop is not None

    def listen(self, session: Session) -> None:
        """Take the events from the session, which was opened here."""
        self.deafen()
        self._stop = session.listen(self.take)
        self.moved(session.state.seq)

    def deafen(self) -> None:
        """Stop listening: the session was closed here."""
        if self._stop is not None:
            self._stop()
            self._stop = None
            self.flush()
            self._said.clear()
            self._asked.clear()

    async def follow(self) -> None:
        """Take the events from the log while there are watchers and the session is not open here."""
        if self.is_followed:
            return
        self.is_followed = True
        tail, pause = self._tail(self.last), POLL
        try:
            while self.watchers and not self.is_heard and not self.is_over:
                found = await anyio.to_thread.run_sync(tail.read) if tail.has_news else []
                if self.is_heard:
                    break  # the session itself is ahead of the log
                for event in found:
                    self.take(event)
                self._remember(tail)
                pause = POLL if found else min(SLOWEST, pause * 1.2)
                if not found and tail.is_gone:
                    self.end()
                if not found:
                    await tail.wait(pause)
        except (OSError, StoreError):
            self.end()  # the log cannot be read: watchers come back and receive the error
        finally:
            self.is_followed = False

    def take(self, event: ev.Event) -> None:
        """Take an event of the session."""
        if isinstance(event, ev.SubagentEvent):
            self._note_child(event)
        if not isinstance(event, Live):
            if event.seq > self.last:  # a waiting approval is repeated for late watchers, and known here
                self.flush()
                self._forget_said(event)
                self._push(event)
                self._note_recorded()
        elif (key := _key(event)) is not None:
            self._keep(key, event)
        else:
            self.flush()
            if isinstance(event, ev.RetryScheduled):
                self._forget_text()
                self._said["retry", ""] = JoinedText(event, [])
            self._push(event)

    def take_live(self, after: int, event: ev.Event) -> None:
        """Take an event that another process has not recorded; it came there after the recorded event `after`.

        It waits until that has been read from the log. If later ones have been read already, text is out of date; an
        approval of a sub-agent still waits for its answer.
        """
        _, inner = ev.innermost(event)
        if after == self.last or (after < self.last and isinstance(inner, ev.ApprovalRequested | ev.ApprovalResolved)):
            self.take(event)
        elif after > self.last:
            self._early.append((after, event))

    def _note_recorded(self) -> None:
        recorded, self.recorded = self.recorded, anyio.Event()
        recorded.set()
        early, self._early = self._early, []
        for after, event in early:
            self.take_live(after, event)

    def _push(self, event: ev.Event) -> None:
        if self.watchers:
            self.push(framed(event, self.session))
        else:
            self.last = event.seq or self.last

    def _keep(self, key: Key, event: ev.EphemeralEvent) -> None:
        text = _text(event)
        if len(key) == 2:
            _add(self._said, key, event, text)
            if key[0] == "output":
                _shorten(self._said[key])
        if self.watchers:
            if not self._waiting:
                self._flusher.wants(self)
            _add(self._waiting, key, event, text)

    def flush(self) -> None:
        """Push the joined texts."""
        if self._waiting:
            pieces, self._waiting = self._waiting, {}
            for piece in pieces.values():
                self.push(framed(piece.joined(), self.session))

    def joined(self) -> list[Frame]:
        """Return the text of the running step, joined by kind, and the open approvals of sub-agents."""
        self.flush()
        events = [*self._asked.values(), *(piece.joined() for piece in self._said.values())]
        return [framed(event, self.session) for event in events]

    def _forget_said(self, event: ev.Event) -> None:
        match event:
            case ev.MessageAdded() if event.message.role == "assistant":
                self._forget_text()
            case ev.StepStarted():
                self._forget_text()
            case ev.ToolFinished():
                self._said.pop(("output", event.call_id), None)
            case ev.TurnFinished():
                self._said.clear()
                self._asked.clear()
            case _:
                pass

    def _forget_text(self) -> None:
        for kind in ("text", "thinking", "progress", "retry"):
            self._said.pop((kind, ""), None)

    def _note_child(self, event: ev.SubagentEvent) -> None:
        _, inner = ev.innermost(event)
        match inner:
            case ev.ApprovalRequested():
                self._asked[inner.id] = event
            case ev.ApprovalResolved():
                self._asked.pop(inner.approval, None)
            case _:
                pass

    def reader(self, after: int) -> Reader:
        tail = self._tail(after)

        def read() -> list[Frame]:
            return [framed(event, self.session) for event in tail.read()]

        async def next_frames() -> Sequence[Frame]:
            frames = await anyio.to_thread.run_sync(read) if tail.has_news else list[Frame]()
            self._remember(tail)
            return frames

        return next_frames

    def _tail(self, after: int) -> SessionTail:
        return self._store.tail(self.session, after, self._mark if self._mark.seq <= after else NOWHERE)

    def _remember(self, tail: SessionTail) -> None:
        """Keep the position of a reader, so that later readers need not begin at the beginning."""
        if tail.mark.seq > self._mark.seq:
            self._mark = tail.mark


def _key(event: ev.EphemeralEvent) -> Key | None:
    """Return the key of texts to join: the sub-agents' calls, kind and call; None for an event to push at once."""
    match event:
        case ev.TextDelta():
            return ("text", "")
        case ev.ThinkingDelta():
            return ("thinking", "")
        case ev.ToolOutput():
            return ("output", event.call_id)
        case ev.PrefillProgress():
            return ("progress", "")
        case ev.SubagentEvent() if not event.event.seq:
            inner = _key(event.event)
            return None if inner is None else (event.child, *inner)
        case _:
            return None


def _text(event: ev.EphemeralEvent) -> str | None:
    _, inner = ev.innermost(event)
    return inner.text if isinstance(inner, Spoken) else None


def _with_text(event: ev.EphemeralEvent, text: str) -> ev.EphemeralEvent:
    if isinstance(event, ev.SubagentEvent):
        return msgspec.structs.replace(event, event=_with_text(event.event, text))
    return msgspec.structs.replace(event, text=text)


def _add(pieces: dict[Key, JoinedText], key: Key, event: ev.EphemeralEvent, text: str | None) -> None:
    """Append a text to its piece, and move the piece to the end."""
    piece = pieces.pop(key, None)
    if piece is None or text is None:
        piece = JoinedText(event, [] if text is None else [text])
    else:
        piece.texts.append(text)
        piece.event = event
    pieces[key] = piece


def _shorten(piece: JoinedText) -> None:
    """Keep only the end of a long output."""
    if len(piece.texts) > 64:
        piece.texts = ["".join(piece.texts)[-MOST_OUTPUT:]]
        piece.event = _with_text(piece.event, piece.texts[0])
