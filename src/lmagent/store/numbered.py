"""Numbered: every event of every session, in the order in which the index has read it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from msgspec import Struct

from lmagent.core.events import DurableEvent
from lmagent.store.scan import LogLine

EventRow = tuple[str, int, float, str, int, int]
"""Session, seq, Unix seconds, type, and the bytes of the line: its offset and its length."""

_PLACE = (  # an event keeps its number wherever its line is now: a reader that has seen it must not get it again
    "INSERT INTO event (session, seq, ts, type, start, size) VALUES (?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (session, seq) DO UPDATE SET ts = excluded.ts, type = excluded.type, "
    "start = excluded.start, size = excluded.size"
)


class EventPlace(Struct, frozen=True):
    """Where an event is.

    Attributes:
        number: its number among all, from 1, rising.
        seq: its place in that session.
        start: where its line begins in the log, in bytes.
        size: bytes of the line.
    """

    number: int
    session: str
    seq: int
    start: int
    size: int


def place_of(session: str, event: DurableEvent, line: LogLine) -> EventRow:
    return (session, line.seq, event.ts, str(event.__struct_config__.tag), line.start, len(line.raw))


def number(database: sqlite3.Connection, places: Iterable[EventRow]) -> None:
    database.executemany(_PLACE, places)


def numbering(database: sqlite3.Connection) -> tuple[str, int]:
    """Return the mark that distinguishes this numbering from another index's, and the last number given."""
    given = "SELECT seq FROM sqlite_sequence WHERE name = 'event'"  # the last one may have been deleted since
    row = database.execute(f"SELECT mark, COALESCE(({given}), 0) FROM numbering").fetchone()
    return str(row[0]), int(row[1])


def numbered(database: sqlite3.Connection, after: int, limit: int) -> list[EventPlace]:
    query = "SELECT number, session, seq, start, size FROM event WHERE number > ? ORDER BY number LIMIT ?"
    return [EventPlace(*row) for row in database.execute(query, (after, limit))]
