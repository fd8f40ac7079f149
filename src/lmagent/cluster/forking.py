"""Copies of sessions in the tables, and the session that begins anew under its id."""

from __future__ import annotations

from typing import Any

from lmagent.cluster.database import Connection, Database, only_row
from lmagent.cluster.listening import EVENTS
from lmagent.core.errors import SessionNotFound, StoreError
from lmagent.core.events import SessionCreated, SessionForked
from lmagent.core.ports import Clock
from lmagent.store.fork import NAMED
from lmagent.store.log import stamp

_ADD = "INSERT INTO event (session, seq, epoch, line) VALUES (%s, %s, 1, %b)"
_SOURCE = "SELECT number, seq FROM session WHERE workspace = %s AND id = %s FOR SHARE"
_MAKE = "INSERT INTO session (workspace, id, seq) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING RETURNING number"
_COPY = (
    "INSERT INTO event (session, seq, epoch, line) SELECT %s, seq, 1, line FROM event WHERE session = %s AND seq <= %s"
)
_BLOBS = (
    "INSERT INTO blob (session, sha256, size, content, object) "
    "SELECT %s, sha256, size, content, object FROM blob WHERE session = %s AND left(sha256, 12) = ANY(%s)"
)


def fork_session(
    database: Database,
    source: tuple[str, str],
    target: str,
    through_seq: int | None,
    clock: Clock,
    *,
    moved: bool = False,
) -> SessionForked:
    """Copy the events of a session up to one of them, unchanged, and add an event that says so.

    `source`: workspace and id. The new session appears all at once. `moved`: the source is about to be deleted, so its
    events count as the copy's own. Raises SessionNotFound or StoreError.
    """
    attempts: list[tuple[Any, bytes]] = []

    def work(connection: Connection) -> SessionForked:
        with connection.transaction():
            row = connection.execute(_SOURCE, source).fetchone()
            if row is None:
                raise SessionNotFound(f"there is no session {source[1]}", terminal="lmagent sessions list")
            query = "SELECT max(seq) FROM event WHERE session = %s AND seq <= %s"
            (last,) = only_row(connection, query, (row[0], row[1] if through_seq is None else through_seq))
            if last is None:
                raise StoreError(f"session {source[1]} has no event up to {through_seq}: there is nothing to copy")
            event = SessionForked(session=target, parent=source[1], at_seq=0 if moved else last)
            attempts.append(stamp(event, last + 1, clock))
            made = connection.execute(_MAKE, (source[0], target, last + 1)).fetchone()
            if made is None:
                return _made_before(connection, source[0], target, attempts)
            _copy(connection, row[0], made[0], last)
            forked, line = attempts[-1]
            connection.execute(_ADD, (made[0], last + 1, line[:-1]))
            return forked

    return database.run(work)


def _made_before(
    connection: Connection, workspace: str, target: str, attempts: list[tuple[Any, bytes]]
) -> SessionForked:
    """Return the event of an earlier attempt whose answer was lost. Raise StoreError if the session is another one."""
    query = (
        "SELECT line FROM event JOIN session ON number = event.session AND session.seq = event.seq "
        "WHERE workspace = %s AND id = %s"
    )
    row = connection.execute(query, (workspace, target), binary=True).fetchone()
    for forked, line in attempts:
        if row is not None and bytes(row[0]) == line[:-1]:
            return forked
    raise StoreError(f"there is a session {target} already")


def _copy(connection: Connection, source: int, target: int, last: int) -> None:
    connection.execute(_COPY, (target, source, last))
    named: set[bytes] = set()
    with connection.cursor("lines", binary=True) as lines:
        lines.execute("SELECT line FROM event WHERE session = %s", (target,))
        for (line,) in lines:
            named.update(NAMED.findall(line))
    connection.execute(_BLOBS, (target, source, [name.decode() for name in named]))


def begin_anew(
    connection: Connection, number: int, names: tuple[str, str, str], opening: SessionCreated, clock: Clock
) -> None:
    """Give the session with this number another id, and put a new one in its place, in the open transaction.

    The new log is numbered from the last event of the old one. So a client that has seen the old log up to some event,
    and asks for later ones, gets the whole new log.

    Args:
        names: the workspace, the id, and the other id.
    """
    workspace, session, aside = names
    (last,) = only_row(connection, "SELECT seq FROM session WHERE number = %s", (number,))
    there = "SELECT 1 FROM session WHERE workspace = %s AND id = %s"
    if connection.execute(there, (workspace, aside)).fetchone() is not None:
        raise StoreError(f"there is a session {aside} already")
    rename = "UPDATE session SET id = %s, seq = %s, owner = NULL, epoch = epoch + 1 WHERE number = %s"
    connection.execute(rename, (aside, last + 1, number))
    _, line = stamp(SessionForked(session=aside, parent=session, at_seq=0), last + 1, clock)
    connection.execute(_ADD, (number, last + 1, line[:-1]))
    (made,) = only_row(connection, _MAKE, (workspace, session, last + 1))  # its name is free since this transaction
    _, line = stamp(opening, last + 1, clock)
    connection.execute(_ADD, (made, last + 1, line[:-1]))
    connection.execute("SELECT pg_notify(%s, %s)", (EVENTS, f"{last + 1} {session} {workspace}"))
