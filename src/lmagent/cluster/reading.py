"""Reading lines of a session from the tables."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from lmagent.cluster.database import Connection, Database
from lmagent.store.scan import LogLine, in_order, log_line

BATCH = 500
"""Lines that are read at a time."""

_LINES = "SELECT seq, line FROM event WHERE session = %s AND seq > %s AND seq <= %s ORDER BY seq LIMIT %s"
NO_END = 2**62


def read_lines(database: Database, session: int, after: int = 0, *, through: int = NO_END) -> Iterator[LogLine]:
    """Yield the lines of the session of this number, in order. Raise StoreError."""
    return in_order(_lines(database, session, after, through), after=after)


def _lines(database: Database, session: int, after: int, through: int) -> Iterator[LogLine]:
    while True:
        batch = database.run(partial(some_lines, session=session, after=after, through=through))
        for seq, raw in batch:
            yield log_line(seq, 0, raw)
            after = seq
        if len(batch) < BATCH:
            return


def some_lines(connection: Connection, session: int, after: int, through: int = NO_END) -> list[tuple[int, bytes]]:
    """Return the next lines, in the form of a file's, with their `seq`."""
    rows = connection.execute(_LINES, (session, after, through, BATCH), binary=True).fetchall()
    return [(int(seq), bytes(line) + b"\n") for seq, line in rows]
