"""Ports: the engine's interfaces to the world. Each has one conformance suite in `lmagent.testing`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from lmagent.core.changes import Snapshots
from lmagent.core.events import DurableEvent
from lmagent.core.memory import MemoryIndex
from lmagent.core.model import ModelEvent, ModelRequest
from lmagent.core.sandbox import Sandbox

__all__ = [
    "Clock",
    "Damage",
    "DispatchJob",
    "Dispatcher",
    "EventStore",
    "MemoryIndex",
    "ModelTraits",
    "Postponed",
    "Provider",
    "Sandbox",
    "SessionLog",
    "Snapshots",
]


class Clock(Protocol):
    """Time. Nothing else in core or engine reads it."""

    def now(self) -> float:
        """Unix time in seconds."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class Provider(Protocol):
    """A model server."""

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Stream one reply; the last event is the `Reply`.

        Raises ProviderError: typed, and only after the adapter's own retries.
        """
        ...

    async def aclose(self) -> None:
        """Close connections."""
        ...


class ModelTraits:
    """Facts learned about models that outlive a session; this base knows nothing and keeps nothing."""

    def is_constrained(self, model: str) -> bool:
        """Whether the model failed to call by itself."""
        return False

    def constrain(self, model: str) -> None:
        """Note that the model failed to call by itself."""

    def free(self, model: str) -> None:
        """Note that the model has called rightly for long enough to lift the constraint."""

    def joins(self, model: str) -> bool:
        """Whether its chat template refused a user message after results."""
        return False

    def join(self, model: str) -> None:
        """Note that its chat template refused a user message after results."""


class Damage(Struct, frozen=True):
    """A log line that could not be read.

    Attributes:
        line: its number, from 1.
        reason: why.
        torn: True for a half-written last line, which was cut off; False for a line in the middle, which was skipped.
        size: its length in bytes.
    """

    line: int
    reason: str
    torn: bool
    size: int


class SessionLog(Protocol):
    """The log of one session, open for writing by this process alone.

    Attributes:
        session: the session's id.
        damage: the faults found when the log was opened.
    """

    session: str
    damage: Sequence[Damage]

    def events(self) -> Iterable[DurableEvent]:
        """Return the events that were in the log when it was opened, in order."""
        ...

    async def append(self, event: DurableEvent, *, sync: bool = False) -> DurableEvent:
        """Write the event and return it with its `id`, `seq` and `ts`.

        The bytes have reached the kernel when this returns (a SIGKILL does not lose them); with `sync`, the disk.

        Raises StoreError: it could not be written whole; the log is unchanged.
        """
        ...

    async def put_blob(self, content: bytes) -> str:
        """Keep `content` and return its SHA-256 in hexadecimal."""
        ...

    async def adopt_blob(self, path: Path) -> str:
        """Move a file into the blobs, without reading it into memory, and return its SHA-256.

        Raises StoreError if it could not be moved.
        """
        ...

    def get_blob(self, sha256: str) -> bytes:
        """Return the content of a blob, by its hash or a unique prefix of at least 8 digits.

        Raises StoreError if the blob does not exist, or its content no longer matches its hash.
        """
        ...

    def close(self) -> None:
        """Release the session."""
        ...


class EventStore(Protocol):
    """All sessions of a workspace."""

    def create(self, session: str) -> SessionLog:
        """Return a new, empty log. Nothing is on disk before the first append.

        Raises StoreError if a session of that id exists.
        """
        ...

    def open(self, session: str) -> SessionLog:
        """Open an existing log for writing.

        Raises:
            SessionNotFound: no such session.
            SessionBusy: another process writes it.
        """
        ...

    def read(self, session: str, after: int = 0) -> Iterable[DurableEvent]:
        """Read events with `seq` > `after`, without opening the session for writing.

        Raises SessionNotFound if it does not exist.
        """
        ...

    def follow(self, session: str, after: int = 0) -> AsyncIterator[DurableEvent]:
        """Yield history, then events as any process appends them, without gaps."""
        ...

    def sessions(self) -> Sequence[str]:
        """Return the ids of all sessions, oldest first."""
        ...

    def delete(self, session: str) -> None:
        """Delete a session with its blobs.

        Raises:
            SessionNotFound: no such session.
            SessionBusy: a process writes it.
        """
        ...


class DispatchJob(Struct, frozen=True):
    """A piece of work. Its id names its subject; the logs and the files of the schedule are the truth.

    Attributes:
        id: the text of an origin, `wait:EVENT`, `inbox:FILE` or `cron:JOB:UNIXTIME`; submitting it twice is one job.
        lane: jobs of a lane run one at a time, in the order in which they were submitted.
        run_at: Unix time before which it does not run, and holds up nothing in its lane.
    """

    id: str
    lane: str
    run_at: float = 0.0


class Postponed(Exception):
    """A handler cannot do a job now. It is delivered again after so many seconds, and its lane waits for it."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"postponed by {seconds:g} s")
        self.seconds = seconds


class Dispatcher(Protocol):
    """Delivers jobs, one at a time a lane, lanes in parallel; at least once, so that a handler must know a repeat."""

    async def submit(self, job: DispatchJob) -> None:
        """Accept a job; when this returns it will run, even if this process dies.

        Raises StoreError if it was not accepted.
        """
        ...

    async def cancel(self, job: str) -> bool:
        """Forget a job that has not begun; False if it has, or does not exist.

        Raises StoreError if it could not be forgotten.
        """
        ...

    async def serve(self, handler: Callable[[DispatchJob], Awaitable[None]]) -> None:
        """Run jobs until cancelled. A job that is cut off by that is delivered again to the next process that serves.

        `handler`: does a job. If it raises an LmagentError the job is delivered again a few times, and then given up;
        if it raises `Postponed`, as often as it takes. Any other error ends `serve`.
        """
        ...
