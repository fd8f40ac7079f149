"""Port: what the program needs of a workspace's sessions beyond `EventStore`. Files and a cluster's tables have it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from lmagent.core.events import DurableEvent, SessionCreated, SessionForked
from lmagent.core.ports import EventStore
from lmagent.store.scan import LogLine

if TYPE_CHECKING:  # the index loads SQLite
    from lmagent.store.index import SessionIndex


class LogMark(NamedTuple):
    """A line known to be in a log, by which a reader recognises that log.

    Attributes:
        end: the offset after the line; 0 if the log is no file, and the same for the next ones.
        file: the number of the file, which the system may reuse as soon as this file is deleted.
    """

    seq: int = 0
    end: int = 0
    file: int = 0
    size: int = 0
    crc: int = 0


NOWHERE = LogMark()
"""Before the first line."""


POLL = 0.05
"""Seconds between two looks at a log that grows: too short to notice, and about 10 µs each for a file."""


class SessionTail(Protocol):
    """Continues to read a session's log after the event `after`, each time from the line `mark`, where it stopped."""

    after: int
    mark: LogMark

    @property
    def has_news(self) -> bool:
        """Whether the log may have changed since all of it was read. It answers at once."""
        ...

    @property
    def is_gone(self) -> bool:
        """Whether the session does not exist, as far as is known. It answers at once."""
        ...

    def read(self) -> list[DurableEvent]:
        """Return the next events; empty at the end of the log. Raise OSError or StoreError if it cannot be read."""
        ...

    async def wait(self, seconds: float) -> None:
        """Wait for news, at most so many seconds."""
        ...


class SessionStore(EventStore, Protocol):
    """All sessions of a workspace. Names that are no ids of sessions are unknown sessions."""

    async def fork(
        self, source: str, session: str, through_seq: int | None = None, *, moved: bool = False
    ) -> SessionForked:
        """Begin `session` as a copy of `source` up to and including event `through_seq` (all without it).

        The source may be running meanwhile; it is only read. `moved`: it is about to be deleted, and the copy takes
        its place.

        Raises SessionNotFound or StoreError.
        """
        ...

    def begin_anew(self, session: str, aside: str, opening: SessionCreated) -> None:
        """Keep a session's log as the session `aside`, and begin a new one in its place.

        Raises SessionNotFound, SessionBusy or StoreError.
        """
        ...

    def get_blob(self, session: str, sha256: str) -> bytes:
        """Return a blob of a session that is not open, by its hash or a unique prefix of at least 8 digits.

        Raises SessionNotFound or StoreError.
        """
        ...

    def is_running(self, session: str) -> bool:
        """Whether a living process has the session open for writing."""
        ...

    def count(self) -> int:
        """Count the sessions."""
        ...

    def latest(self) -> str | None:
        """Return the session that was written last."""
        ...

    def resolve(self, prefix: str) -> str:
        """Return the session that `prefix` names: an id, the unique beginning of one, or "last".

        Raises SessionNotFound: it names none or several; the message lists candidates.
        """
        ...

    def exists(self, session: str) -> bool: ...

    def last_seq(self, session: str) -> int:
        """Return the `seq` of a session's last event; 0 if it does not exist."""
        ...

    def size(self, session: str) -> int:
        """Return a number that grows with the session's log; 0 if it does not exist."""
        ...

    def tail(self, session: str, after: int = 0, mark: LogMark | None = None) -> SessionTail:
        """Return a reader of the log, which need not exist yet. `mark` is from an earlier reader of this session."""
        ...

    def index(self) -> SessionIndex:
        """Open the index of the sessions."""
        ...

    def feed(self) -> AbstractContextManager[EventFeed]:
        """Open the events of all sessions in one order."""
        ...

    def require_readable(self, session: str) -> None:
        """Raise SessionNotFound if no session has this id, SessionDamaged if its log cannot be read."""
        ...

    def require_free(self, session: str) -> None:
        """Raise SessionDamaged if no session of this id can begin because something else is in its place."""
        ...

    def require_lock(self, session: str) -> None:
        """Raise SessionDamaged if something else is in the place of the session's lock."""
        ...


# --- the events of all sessions ---------------------------------------------------------------------------------------


class EventFeed(Protocol):
    """Numbers the events of all sessions, those of each session in their order. Its methods raise StoreError."""

    def refresh(self) -> None:
        """Number the new events."""
        ...

    def numbering(self) -> tuple[str, int]:
        """Return the mark that distinguishes this numbering from another one, and the last number. Refresh before."""
        ...

    def numbered(self, after: int, limit: int) -> list[EventPlace]:
        """Return the events after a number, in order."""
        ...

    def events(self, places: Sequence[EventPlace]) -> Sequence[tuple[EventPlace, DurableEvent]]:
        """Read the events at these places; deleted ones are left out."""
        ...


# --- the index --------------------------------------------------------------------------------------------------------

Facts = tuple[int, int, int]
"""Of a log: its size or last `seq`, when it was written in ns, and a number that distinguishes it from another log."""

EventRow = tuple[int, int]
"""Where the source finds an event: of a file, its offset and its length."""


class LogPosition(NamedTuple):
    """How far a log was read: the `seq` of the last event, the offset after it, and the number of the log."""

    seq: int
    end: int
    log: int


class EventPlace(NamedTuple):
    """Where an event is.

    Attributes:
        number: its number in the index.
        start: of a file, its offset; else the number of the log.
    """

    number: int
    session: str
    seq: int
    start: int
    size: int


class SessionSource(Protocol):
    """What the index reads.

    Attributes:
        path: the index's database file.
    """

    path: Path

    def logs(self) -> dict[str, Facts]:
        """Return the facts about all logs, by session."""
        ...

    def new_lines(self, session: str, facts: Facts, read: LogPosition) -> tuple[bool, Iterator[LogLine]]:
        """Return whether this is still the log that was read so far, and its lines after that, or all its lines.

        Raises OSError if it cannot be read.
        """
        ...

    def is_held(self, session: str) -> bool:
        """Whether a living process has the session open for writing."""
        ...

    def events(self, places: Sequence[EventPlace]) -> list[tuple[EventPlace, DurableEvent]]:
        """Return the events at these places; deleted ones are left out."""
        ...
