"""MemoryStore: an EventStore without a disk, with the same rules as the real one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

import anyio
import anyio.lowlevel
import msgspec

from lmagent.core.errors import SessionBusy, SessionNotFound, StoreError
from lmagent.core.events import DurableEvent, decode, encode
from lmagent.core.ids import new_id
from lmagent.core.ports import Clock, Damage


@dataclass(slots=True)
class _Record:
    """One session: its log lines, its blobs, whether a writer has it open, and its waiting followers."""

    lines: list[bytes] = field(default_factory=list[bytes])
    blobs: dict[str, bytes] = field(default_factory=dict[str, bytes])
    synced: list[int] = field(default_factory=list[int])
    busy: bool = False
    news: anyio.Event = field(default_factory=anyio.Event)


class MemoryStore:
    """All sessions of a workspace, in memory. Every open log on it counts as another process.

    Args:
        clock: gives the events their times.

    Attributes:
        full: set it to True and every append fails, like on a full disk.
    """

    def __init__(self, clock: Clock) -> None:
        self.full = False
        self._clock = clock
        self._records: dict[str, _Record] = {}

    def create(self, session: str) -> MemoryLog:
        if session in self._records:
            raise StoreError(f"there is a session {session} already", fix="lmagent sessions list")
        record = _Record(busy=True)
        return MemoryLog(self, session, record)

    def open(self, session: str) -> MemoryLog:
        record = self._find(session)
        if record.busy:
            raise SessionBusy(f"session {session} is being written", fix="wait for it, or stop the other process")
        record.busy = True
        return MemoryLog(self, session, record)

    def read(self, session: str, after: int = 0) -> Iterable[DurableEvent]:
        lines = self._find(session).lines[max(0, after) :]
        return (decode(line) for line in lines)

    async def follow(self, session: str, after: int = 0) -> AsyncIterator[DurableEvent]:
        record = self._find(session)
        position = max(0, after)
        while True:
            news = record.news
            while position < len(record.lines):
                position += 1
                yield decode(record.lines[position - 1])
            await news.wait()

    def sessions(self) -> Sequence[str]:
        return tuple(self._records)

    def delete(self, session: str) -> None:
        if self._find(session).busy:
            raise SessionBusy(f"session {session} is being written", fix="stop it first")
        del self._records[session]

    def synced(self, session: str) -> Sequence[int]:
        """Return the `seq` of every append that asked for a sync."""
        return tuple(self._find(session).synced)

    def _find(self, session: str) -> _Record:
        if session not in self._records:
            raise SessionNotFound(f"there is no session {session}", fix="lmagent sessions list")
        return self._records[session]

    def write(self, session: str, record: _Record, event: DurableEvent, *, sync: bool) -> DurableEvent:
        """Number the event and keep it, for the log."""
        if self.full:
            raise StoreError("no space left", fix="free some space, then resume the session")
        if self._records.setdefault(session, record) is not record:
            raise StoreError(f"there is a session {session} already", fix="lmagent sessions list")
        seq = len(record.lines) + 1
        stored = msgspec.structs.replace(event, id=event.id or new_id(), seq=seq, ts=event.ts or self._clock.now())
        record.lines.append(encode(stored))
        if sync:
            record.synced.append(seq)
        news, record.news = record.news, anyio.Event()
        news.set()
        return stored


class MemoryLog:
    """The log of one session, open for writing.

    Attributes:
        session: the session's id.
        damage: always empty.
    """

    def __init__(self, store: MemoryStore, session: str, record: _Record) -> None:
        self.session = session
        self.damage: Sequence[Damage] = ()
        self._store = store
        self._record = record
        self._opened = tuple(record.lines)
        self._closed = False

    def events(self) -> Iterable[DurableEvent]:
        return (decode(line) for line in self._opened)

    async def append(self, event: DurableEvent, *, sync: bool = False) -> DurableEvent:
        if self._closed:
            raise StoreError(f"the log of session {self.session} is closed")
        stored = self._store.write(self.session, self._record, event, sync=sync)
        await anyio.lowlevel.cancel_shielded_checkpoint()
        return stored

    async def put_blob(self, content: bytes) -> str:
        if self._closed:
            raise StoreError(f"the log of session {self.session} is closed")
        name = sha256(content).hexdigest()
        self._record.blobs[name] = bytes(content)
        return name

    async def adopt_blob(self, path: Path) -> str:
        name = await self.put_blob(path.read_bytes())
        path.unlink()
        return name

    def get_blob(self, sha256: str) -> bytes:
        found = [name for name in self._record.blobs if name.startswith(sha256)]
        if len(sha256) < 8 or len(found) != 1:
            raise StoreError(f"there is no artifact {sha256}")
        return self._record.blobs[found[0]]

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._record.busy = False
