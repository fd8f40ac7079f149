"""The index of the sessions: a SQLite file, filled by its readers. It can be deleted without loss.

The writer of a session never touches it, so it costs a step nothing. A reader first reads the new events of the logs
(`refresh`), each from where it stopped.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Sequence
from typing import TypeVar

from msgspec import Struct, field

from lmagent.core.decoding import convert
from lmagent.core.errors import StoreError
from lmagent.core.events import DurableEvent, SessionForked
from lmagent.core.ids import InputOrigin
from lmagent.store.activity import Activity, activity, activity_of, store_activity
from lmagent.store.branches import Branch, branches
from lmagent.store.database import is_damage, move_aside, open_database
from lmagent.store.port import EventPlace, Facts, LogPosition, SessionSource
from lmagent.store.scan import LogLine
from lmagent.store.spent import Spending, UsageRow, count_usage, spending, store_usage
from lmagent.store.tally import ListPlace, SessionRow, Shelf, Tally, passage_of

T = TypeVar("T")


_WORD = re.compile(r"\w+")
_COLUMNS = Tally.__struct_fields__
_TABLES = ("passage", "usage", "activity", "event")
"""Tables with rows of a session, besides its own."""

_ROW = f"SELECT {', '.join(_COLUMNS)} FROM session WHERE id = ?"


EventRow = tuple[str, int, float, str, int, int]
"""Session, seq, Unix seconds, type, and the bytes of the line: its offset and its length."""


class _Gained(Struct):
    """The new events of a log since its tally was stored."""

    tally: Tally
    usage: list[UsageRow] = field(default_factory=list[UsageRow])
    passages: list[tuple[str, str, int, str]] = field(default_factory=list[tuple[str, str, int, str]])
    activity: list[Activity] = field(default_factory=list[Activity])
    places: list[EventRow] = field(default_factory=list[EventRow])
    is_copy: bool = False

    def add(self, line: LogLine) -> None:
        assert line.event is not None
        self.tally.apply(line.event)
        count_usage(self.usage, line.event, self.tally.model)
        self.tally.seq, self.tally.read_to = line.seq, line.end
        tag = str(line.event.__struct_config__.tag)
        self.places.append((self.tally.id, line.seq, line.event.ts, tag, line.start, len(line.raw)))
        if (said := passage_of(line.event)) is not None:
            self.passages.append((said[1], self.tally.id, line.seq, said[0]))
        if isinstance(line.event, SessionForked) and line.event.at_seq:
            self.activity.clear()  # that happened in the session it is a copy of
            self.is_copy = True
        elif (done := activity_of(self.tally.id, line.event)) is not None:
            self.activity.append(done)


class Unattended(Struct, frozen=True):
    """A session that continues without the user: it waits for a time, or a job's turn in it was interrupted.

    Attributes:
        until: Unix seconds at which it continues; 0 for an interrupted one.
        ended: id of the event that ended its last turn.
    """

    session: str
    until: float
    ended: str
    origin: InputOrigin
    surface: str = ""


class SessionIndex:
    """The index over the sessions of a source.

    Reads raise StoreError if the database cannot be read.
    """

    def __init__(self, source: SessionSource) -> None:
        self.source = source
        self.path = source.path
        self._db = open_database(self.path)

    def __enter__(self) -> SessionIndex:
        return self

    def __exit__(self, *why: object) -> None:
        self.close()

    def close(self) -> None:
        self._db.close()

    # --- reading ------------------------------------------------------------------------------------------------

    def list(
        self,
        limit: int = 20,
        search: str = "",
        *,
        children: bool = False,
        after: ListPlace | None = None,
        shelf: Shelf = "all",
    ) -> list[SessionRow]:
        """List sessions, pinned ones first, then the most recently written.

        Sessions of sub-agents are included when they are asked for or `search` is not empty.

        Args:
            children: with those of sub-agents, whatever the shelf.
            search: only those that contain all these words, anywhere, or have the text in their id or title.
        """
        return self._run(lambda: self._list(limit, search.strip(), children or bool(search.strip()), after, shelf))

    def row(self, session: str) -> SessionRow | None:
        """Return one session; None if the index does not have it. Refresh before."""
        return self._run(lambda: self._one(session))

    def branches(self) -> dict[str, Branch]:
        """Return the copies of sessions and the sessions that were copied, by id. Refresh before."""
        return self._run(lambda: branches(self._db))

    def unattended(self) -> list[Unattended]:
        """Return the sessions that continue without the user, the first to be due first. Refresh before."""
        return self._run(self._unattended)

    def from_api(self, begin: str) -> list[str]:
        """Return the sessions whose newest input is from the API, with a key that begins so. Refresh before."""
        begin = str(InputOrigin("api", begin))
        query = "SELECT id FROM session WHERE child = 0 AND substr(job, 1, ?) = ? ORDER BY id"
        return [str(id) for (id,) in self._run(lambda: self._db.execute(query, (len(begin), begin)).fetchall())]

    def spending(self, since: str = "") -> Spending:
        """Sum up the usage since a local day (`2026-01-31`); empty for everything on record. Refresh before."""
        return self._run(lambda: spending(self._db, since))

    def activity(self, limit: int = 50, session: str = "") -> list[Activity]:
        """Return the newest activity, of one session or of all, the newest first. Refresh before."""
        return self._run(lambda: activity(self._db, limit, session))

    def numbering(self) -> tuple[str, int]:
        """Return the mark that distinguishes this index's numbering from another's, and the last number.

        Refresh before.
        """
        given = "SELECT seq FROM sqlite_sequence WHERE name = 'event'"  # the last one may have been deleted since
        query = f"SELECT mark, COALESCE(({given}), 0) FROM numbering"
        mark, last = self._run(lambda: self._db.execute(query).fetchone())
        return str(mark), int(last)

    def numbered(self, after: int, limit: int) -> list[EventPlace]:
        """Return the events after a number, in the order in which they were read. Refresh before."""
        query = "SELECT number, session, seq, start, size FROM event WHERE number > ? ORDER BY number LIMIT ?"
        return [EventPlace(*row) for row in self._run(lambda: self._db.execute(query, (after, limit)).fetchall())]

    def events(self, places: Sequence[EventPlace]) -> Sequence[tuple[EventPlace, DurableEvent]]:
        """Read the events at these places from the logs; deleted ones are left out."""
        return self.source.events(places)

    def at_work(self) -> tuple[int, int]:
        """Return how many turns run in living processes, and how many approvals they wait for. Refresh before."""
        rows = self._run(lambda: self._db.execute("SELECT id, asks FROM session WHERE turn_open").fetchall())
        asks = [int(asks) for session, asks in rows if self.source.is_held(session)]
        return len(asks), sum(asks)

    def askers(self) -> dict[str, list[str]]:
        """Return the sub-agents that wait for an approval, by each session above them. Refresh before."""
        return self._run(self._askers)

    def refresh(self) -> None:
        """Read the new events of the logs, and forget deleted sessions.

        Raises StoreError if the database cannot be read or written.
        """
        self._run(self._refresh)

    # --- the work -------------------------------------------------------------------------------------------------

    def _run(self, work: Callable[[], T]) -> T:
        """Work on the database: a damaged one is moved aside and filled anew, a locked one is skipped."""
        try:
            return work()
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.ProgrammingError):
                raise
            if self._db.in_transaction:
                self._db.rollback()
            self._db.close()
            self._db = open_database(self.path if is_damage(error) and move_aside(self.path) else None)
        try:
            self._refresh()
            return work()
        except sqlite3.DatabaseError as error:
            raise StoreError(f"the index of the sessions failed: {error}", fix=f"delete {self.path}") from error

    def _refresh(self) -> None:
        found = self.source.logs()
        known = {
            str(row[0]): tuple(row[1:]) for row in self._db.execute("SELECT id, size, mtime_ns, inode FROM session")
        }
        for session in known.keys() - found.keys():
            self._forget(session)
        for session, facts in found.items():
            if known.get(session) != facts:
                self._read(session, facts)

    def _read(self, session: str, facts: Facts) -> None:
        """Fold in a log's new events, or all of it if it is not the log that was read before."""
        with self._db:
            self._db.execute("BEGIN IMMEDIATE")  # other readers wait, and find the events read
            row = self._db.execute(_ROW, (session,)).fetchone()
            gained = _Gained(Tally(session) if row is None else _tally(row))
            tally = gained.tally
            try:
                continues, found = self.source.new_lines(
                    session, facts, LogPosition(tally.seq, tally.read_to, tally.inode)
                )
                if not continues:
                    gained = _Gained(Tally(session))
                    tally = gained.tally
                is_fresh = tally.read_to == 0
                for line in found:
                    gained.add(line)
            except OSError:
                return  # deleted meanwhile, or not readable: the list omits it
            tally.size, tally.mtime_ns, tally.inode = facts
            tally.created = tally.created or facts[1] / 1e9
            tally.updated = tally.updated or facts[1] / 1e9
            self._store(gained, is_fresh=is_fresh)

    def _store(self, gained: _Gained, *, is_fresh: bool) -> None:
        """Store new events, in the open transaction."""
        id = gained.tally.id
        for table in _TABLES if is_fresh else ("usage", "activity") if gained.is_copy else ():
            self._db.execute(f"DELETE FROM {table} WHERE session = ?", (id,))
        query = "INSERT INTO passage (text, session, seq, role) VALUES (?, ?, ?, ?)"
        self._db.executemany(query, gained.passages)
        store_usage(self._db, id, gained.usage)
        store_activity(self._db, id, gained.activity)
        query = "INSERT INTO event (session, seq, ts, type, start, size) VALUES (?, ?, ?, ?, ?, ?)"
        self._db.executemany(query, gained.places)
        values = [getattr(gained.tally, name) for name in _COLUMNS]
        marks = ", ".join("?" * len(_COLUMNS))
        self._db.execute(f"INSERT OR REPLACE INTO session ({', '.join(_COLUMNS)}) VALUES ({marks})", values)

    def _forget(self, session: str) -> None:
        self._db.execute("DELETE FROM session WHERE id = ?", (session,))
        for table in _TABLES:
            self._db.execute(f"DELETE FROM {table} WHERE session = ?", (session,))

    def _one(self, session: str) -> SessionRow | None:
        row = self._db.execute(_ROW, (session,)).fetchone()
        return None if row is None else self._row(_tally(row))

    def _list(self, limit: int, search: str, children: bool, after: ListPlace | None, shelf: Shelf) -> list[SessionRow]:
        rows: list[SessionRow] = []
        found = 0
        fitting = self._fitting(search) if search else None
        since = "(pinned, updated, id) < (?, ?, ?)" if after else "1"
        wanted = {"all": "1", "open": "NOT archived", "archived": "archived"}[shelf]
        where = f"WHERE child OR ({since} AND {wanted})"
        query = f"SELECT {', '.join(_COLUMNS)} FROM session {where} ORDER BY pinned DESC, updated DESC, id DESC"
        for row in self._db.execute(query, after or ()):
            tally = _tally(row)
            named = search.lower() in f"{tally.id}\n{tally.title}".lower()
            if (fitting is None or named or tally.id in fitting) and (children if tally.child else found < limit):
                rows.append(self._row(tally))
                found += not tally.child
            if found >= limit and not children:
                break
        return rows

    def _row(self, tally: Tally) -> SessionRow:
        open_work = bool(tally.turn_open or tally.waiting)
        status = tally.status(held=open_work and self.source.is_held(tally.id))
        shared = {name: getattr(tally, name) for name in SessionRow.__struct_fields__ if name in _COLUMNS}
        return SessionRow(status=status, waiting_for=tally.waiting_for(status), **shared)

    def _fitting(self, search: str) -> set[str]:
        fitting: set[str] | None = None
        for word in _WORD.findall(search):
            cursor = self._db.execute("SELECT DISTINCT session FROM passage WHERE passage MATCH ?", (_term(word),))
            found = {str(session) for (session,) in cursor}
            fitting = found if fitting is None else fitting & found
        return fitting or set()

    def _askers(self) -> dict[str, list[str]]:
        parents = dict(self._db.execute("SELECT id, parent FROM session WHERE child").fetchall())
        asking = self._db.execute("SELECT id FROM session WHERE child AND turn_open AND asks > 0").fetchall()
        found: dict[str, list[str]] = {}
        for (session,) in asking:
            if not self.source.is_held(session):
                continue
            above, met = parents.get(session), {session}
            while above and above not in met:
                met.add(above)
                found.setdefault(above, []).append(session)
                above = parents.get(above)
        return found

    def _unattended(self) -> list[Unattended]:
        query = (
            "SELECT id, until, ended, job, surface FROM session WHERE child = 0 "
            "AND (until > 0 OR (job <> '' AND (turn_open OR waiting > 0))) ORDER BY until, id"
        )
        return [
            Unattended(session, until, ended, InputOrigin.of(job), surface)
            for session, until, ended, job, surface in self._db.execute(query)
        ]


def _tally(row: Sequence[object]) -> Tally:
    return convert(dict(zip(_COLUMNS, row, strict=True)), Tally, strict=False)


def _term(word: str) -> str:
    """Quote a word for FTS5, so that nothing in it is syntax, and match it as the beginning of a word."""
    return f'"{word}"*'
