"""SessionStream: the events of one session: of its listeners if it is open here, otherwise read from its log."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec
from msgspec import Struct

from lmagent.core import events as ev
from lmagent.engine.session import Session
from lmagent.gateway.broadcast.watchers import Frame, Reader, Stream, framed
from lmagent.store.follow import NOWHERE, POLL, LogMark, LogTail

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
        self._news = anyio.Event()
        self._beaten = 0.0

    def wants(self, stream: SessionStream) -> None:
        """Flush a stream with the next beat."""
        self._ready.append(stream)
        self._news.set()

    async def run(self) -> None:
        """Flush until cancelled: at once after a silence, then with a pause between two beats."""
        while True:
            await self._news.wait()
            await anyio.sleep(max(0.0, self._beaten + BEAT - time.monotonic()))
            self._beaten = time.monotonic()
            self._news, ready, self._ready = anyio.Event(), self._ready, []
            for stream in ready:
                stream.flush()


class SessionStream(Stream):
    """The stream of one session; `last` is the `seq` of the last event known to be recorded."""

    def __init__(self, session: str, log: Path, flusher: Flusher, last: int = 0) -> None:
        super().__init__(last)
        self.session = session
        self.is_followed = False
        self._log = log
        self._flusher = flusher
        self._mark: LogMark = NOWHERE
        self._waiting: dict[Key, JoinedText] = {}
        self._said: dict[Key, JoinedText] = {}
        self._asked: dict[str, ev.SubagentEvent] = {}
        self._stop: Callable[[], None] | None = None

    # --- where events come from -------------------------------------------------------------------------------------

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
        tail, pause = LogTail(self._log, self.last, self._known(self.last)), POLL
        try:
            while self.watchers and not self.is_heard and not self.is_over:
                found = await anyio.to_thread.run_sync(tail.read) if tail.has_news else []
                if self.is_heard:
                    break  # the session itself is ahead of the log
                for event in found:
                    self.push(framed(event, self.session))
                self._remember(tail)
                pause = POLL if found else min(SLOWEST, pause * 1.2)
                if not found and not self._log.exists():
                    self.end()
                if not found:
                    await anyio.sleep(pause)
        except OSError:
            self.end()  # the log cannot be read: watchers come back and receive the error
        finally:
            self.is_followed = False

    # --- listening --------------------------------------------------------------------------------------------------

    def take(self, event: ev.Event) -> None:
        """Take an event of the session."""
        if isinstance(event, ev.SubagentEvent):
            self._note_child(event)
        if not isinstance(event, Live):
            if event.seq > self.last:  # a waiting approval is repeated for late watchers, and known here
                self.flush()
                self._forget_said(event)
                self._push(event)
        elif (key := _key(event)) is not None:
            self._keep(key, event)
        else:
            self.flush()
            if isinstance(event, ev.RetryScheduled):
                self._forget_text()
                self._said["retry", ""] = JoinedText(event, [])
            self._push(event)

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

    # --- late watchers ----------------------------------------------------------------------------------------------

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

    # --- recorded events --------------------------------------------------------------------------------------------

    def reader(self, after: int) -> Reader:
        tail = LogTail(self._log, after, self._known(after))

        def read() -> list[Frame]:
            return [framed(event, self.session) for event in tail.read()]

        async def next_frames() -> Sequence[Frame]:
            frames = await anyio.to_thread.run_sync(read) if tail.has_news else list[Frame]()
            self._remember(tail)
            return frames

        return next_frames

    def _known(self, after: int) -> LogMark:
        return self._mark if self._mark.seq <= after else NOWHERE

    def _remember(self, tail: LogTail) -> None:
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
