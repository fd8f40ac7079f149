"""The store: all sessions of a workspace, in the tables."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from lmagent.cluster.blobs import ClusterBlobs
from lmagent.cluster.database import Connection, Query, only_row
from lmagent.cluster.feed import ClusterFeed
from lmagent.cluster.forking import begin_anew, fork_session
from lmagent.cluster.listening import EVENTS
from lmagent.cluster.log import ClusterLog
from lmagent.cluster.member import Member
from lmagent.cluster.reading import read_lines
from lmagent.cluster.source import ClusterSource
from lmagent.cluster.tail import LOOK, ClusterTail, News
from lmagent.cluster.threads import in_thread
from lmagent.config.settings import Settings
from lmagent.core.errors import SessionBusy, SessionNotFound, StoreError
from lmagent.core.events import DurableEvent, SessionCreated, SessionForked
from lmagent.core.ids import SESSION_RULE, is_session_id
from lmagent.core.ports import Clock
from lmagent.store.files import make_private
from lmagent.store.names import resolve_name
from lmagent.store.port import NOWHERE, LogMark

if TYPE_CHECKING:
    from lmagent.cluster.objects import ObjectStorage
    from lmagent.store.index import SessionIndex
    from lmagent.store.tally import SessionRow

_TAKE = "UPDATE session SET epoch = epoch + 1, owner = %s WHERE number = %s RETURNING epoch"
_BEFORE = "changed <= clock_timestamp() - %s * interval '1 day'"
_OLD = f"SELECT id FROM session WHERE workspace = %s AND {_BEFORE}".encode()
_DELETE = f"DELETE FROM session WHERE number = %s AND (%s = 0 OR {_BEFORE}) RETURNING number".encode()
_FORGET = (
    "DELETE FROM memory_item WHERE workspace = %s AND session = %s",
    "DELETE FROM memory_source WHERE workspace = %s AND name = %s",
)

# A job that is done from its beginning: nothing runs it, and its row is deleted after a day.
_HOUR = (
    "INSERT INTO job (workspace, id, lane, run_at, state) VALUES (%s, "
    "'upkeep ' || to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYYMMDDHH24'), '', clock_timestamp(), 'done') "
    "ON CONFLICT DO NOTHING RETURNING id"
)


class ClusterStore:
    """Sessions of one workspace in PostgreSQL.

    Args:
        workspace: its name in the cluster.
        member: this process, which owns the sessions that are open for writing.
    """

    def __init__(self, workspace: str, member: Member, clock: Clock, settings: Settings) -> None:
        self.workspace = workspace
        self.member = member
        self.presence = member.presence
        self.database = member.database
        self._clock = clock
        self._settings = settings
        self._news = News(member.listener, workspace)
        self._blobs = ClusterBlobs(self.database, workspace, _storage(settings.cluster_objects))

    # --- writing ------------------------------------------------------------------------------------------------

    def create(self, session: str) -> ClusterLog:
        """Return a new, empty log. Nothing is in the tables before the first append.

        Raises StoreError if a session of that id exists, or the id is not valid.
        """
        _require_id(session)
        if self._number(session):
            raise StoreError(f"there is a session {session} already", terminal=f"lmagent --resume {session}")
        return ClusterLog(self.workspace, session, self.presence, self._blobs, self._clock)

    def open(self, session: str) -> ClusterLog:
        """Open an existing log for writing. Raises SessionNotFound, SessionBusy or StoreError."""
        owner = self.presence.id
        with self.presence.opening:
            number, epoch = self.database.run(lambda connection: self._take(connection, session, owner))
            self.presence.written.add(number)
        log = ClusterLog(self.workspace, session, self.presence, self._blobs, self._clock, number=number, epoch=epoch)
        try:
            log.load()
        except BaseException:
            log.close()
            raise
        return log

    def _take(self, connection: Connection, session: str, owner: int) -> tuple[int, int]:
        with connection.transaction():
            number = self._locked(connection, session)
            (epoch,) = only_row(connection, _TAKE, (owner, number))
            return number, int(epoch)

    def _locked(self, connection: Connection, session: str) -> int:
        """Lock a session's row for the open transaction, and return its number.

        The owner is looked up by a statement of its own: the first one may have waited for another process, and does
        not see what that has written.

        Raises SessionNotFound, or SessionBusy if a living process writes the session.
        """
        query = "SELECT number, owner FROM session WHERE workspace = %s AND id = %s FOR UPDATE"
        row = connection.execute(query, (self.workspace, session)).fetchone()
        if row is None:
            _not_found(session)
        number, owner = row
        if owner is not None and owner == self.presence.joined:
            if number in self.presence.written:
                raise SessionBusy(
                    f"session {session} is already open in this process",
                    terminal=f"work on a copy: lmagent sessions fork {session}",
                )
        elif owner is not None:
            found = connection.execute("SELECT name FROM process WHERE id = %s AND is_alive(beat)", (owner,)).fetchone()
            if found is not None:
                raise SessionBusy(
                    f"session {session} is in use by process {found[0]}",
                    fix="stop that process, or work on a copy",
                    terminal=f"stop that process, or work on a copy: lmagent sessions fork {session}",
                )
        return int(number)

    async def fork(
        self, source: str, session: str, through_seq: int | None = None, *, moved: bool = False
    ) -> SessionForked:
        """Begin `session` as a copy of `source` up to and including event `through_seq` (all without it).

        The source may be running meanwhile; it is only read. `moved`: it is about to be deleted, and the copy takes
        its place.

        Raises SessionNotFound or StoreError.
        """
        _require_id(session)
        return await in_thread(
            lambda: fork_session(
                self.database, (self.workspace, source), session, through_seq, self._clock, moved=moved
            )
        )

    def begin_anew(self, session: str, aside: str, opening: SessionCreated) -> None:
        """Keep a session's log as the session `aside`, and begin a new one in its place.

        Raises SessionNotFound, SessionBusy or StoreError.
        """
        _require_id(aside)
        number = self._known(session)

        def work(connection: Connection) -> None:
            with connection.transaction():
                if self._find(connection, aside) == number:
                    return  # an attempt whose answer was lost
                names = (self.workspace, session, aside)
                begin_anew(connection, self._locked(connection, session), names, opening, self._clock)

        self.database.run(work)

    def delete(self, session: str) -> None:
        """Delete a session with its blobs and its texts in the memory's index; `prune` deletes its objects.

        Raises SessionNotFound, SessionBusy or StoreError.
        """
        self._delete(session, 0)

    def _delete(self, session: str, days: int) -> bool:
        """Delete a session; with `days`, only if it was not written for so long. Return whether it was deleted."""
        number = self._known(session)

        def work(connection: Connection) -> bool:
            with connection.transaction():
                if self._find(connection, session) != number:
                    return True  # deleted by an attempt whose answer was lost, or by another process
                self._locked(connection, session)
                if connection.execute(_DELETE, (number, days, days)).fetchone() is None:
                    return False
                for query in _FORGET:
                    connection.execute(query, (self.workspace, session))
                connection.execute("SELECT pg_notify(%s, %s)", (EVENTS, f"0 {session} {self.workspace}"))
                return True

        return self.database.run(work)

    # --- retention ------------------------------------------------------------------------------------------------

    def begins_upkeep(self) -> bool:
        """Whether this process is the first of the cluster that asks in this hour, and so does the workspace's upkeep.

        Raises StoreError if the database cannot be used.
        """
        return self._row(_HOUR, (self.workspace,)) is not None

    def prune(self, most: int = 2**31) -> list[str]:
        """Delete at most so many sessions that the retention ends; return their ids.

        Kept are pinned sessions, and those that are open, interrupted or wait for something. A sub-agent's session is
        kept as long as its parent's, and longer only if it is itself pinned or waits. If these are all, the objects are
        deleted too that no session has.

        Raises StoreError if the database or the object storage cannot be used.
        """
        days = self._settings.cluster_retention_days
        deleted = self._delete_ended(days, most) if days else []
        if len(deleted) < most:
            self._blobs.prune()
        return deleted

    def _delete_ended(self, days: int, most: int) -> list[str]:
        rows = self.database.rows(_OLD, (self.workspace, days))
        with self.index() as index:
            index.refresh()
            known = {row.id: row for row in index.list(2**31, children=True)}
        ended = {str(id) for (id,) in rows if str(id) in known and _has_ended(known[str(id)])}
        deleted: list[str] = []
        while free := sorted(id for id in ended if not known[id].child or known[id].parent not in known):
            ended.difference_update(free)
            for id in free[: most - len(deleted)]:
                with suppress(SessionBusy, SessionNotFound):  # opened or deleted meanwhile
                    if self._delete(id, days):
                        deleted.append(id)
                        del known[id]  # so that its sub-agents' sessions are free
        return deleted

    # --- reading --------------------------------------------------------------------------------------------------

    def read(self, session: str, after: int = 0) -> Iterable[DurableEvent]:
        """Read events with `seq` > `after`, without opening the session for writing; damaged lines are skipped.

        Raises SessionNotFound or StoreError.
        """
        return self._events(self._known(session), after)

    def _events(self, number: int, after: int) -> Iterator[DurableEvent]:
        for line in read_lines(self.database, number, after):
            if line.event is not None:
                yield line.event

    async def follow(self, session: str, after: int = 0) -> AsyncIterator[DurableEvent]:
        """Yield history, then events as any process appends them, without gaps."""
        tail = self.tail(session, after)
        while True:
            if tail.has_news:
                for event in await in_thread(tail.read):
                    yield event
            else:
                await tail.wait(LOOK)

    def tail(self, session: str, after: int = 0, mark: LogMark | None = None) -> ClusterTail:
        """Return a reader of the log, which need not exist yet. `mark` is from an earlier reader of this session."""
        return ClusterTail(self.database, self._news, (self.workspace, session), after, mark or NOWHERE)

    def index(self) -> SessionIndex:
        """Open the index of the sessions, which is in the user's data folder."""
        from lmagent.store.index import SessionIndex  # loads SQLite

        make_private(self._index.parent)
        return SessionIndex(ClusterSource(self.database, self.workspace, self._index))

    def feed(self) -> AbstractContextManager[ClusterFeed]:
        """Return the events of all sessions in one order, which all gateways have."""
        return nullcontext(ClusterFeed(self.database, self.workspace))

    @cached_property
    def _index(self) -> Path:
        """The file of the index. Its name distinguishes this database from an earlier one at the same address."""
        row = self._row("SELECT mark FROM cluster", ())
        mark = sha256(f"{row} {self.workspace}".encode()).hexdigest()[:24]
        return self._settings.agent_data_dir / "cluster" / f"{mark}.db"

    def holding(self, has_it: Callable[[bytes], bool]) -> list[str]:
        """Return the sessions with a line or a blob for which `has_it`, the newest first. It reads all of them.

        Raises StoreError if the database cannot be used, or a blob is damaged.
        """
        query = "SELECT id, number FROM session WHERE workspace = %s ORDER BY id DESC"
        rows = self.database.rows(query, (self.workspace,))

        def contents(number: int) -> Iterator[bytes]:
            yield from (line.raw for line in read_lines(self.database, number))
            yield from self._blobs.all(number)

        return [str(id) for id, number in rows if any(map(has_it, contents(int(number))))]

    def delete_index(self) -> None:
        """Delete this machine's index of the sessions, which still has texts of deleted ones; it is filled anew."""
        for file in self._index.parent.glob(f"{self._index.name}*"):
            file.unlink(missing_ok=True)

    def get_blob(self, session: str, sha256: str) -> bytes:
        """Return a blob of a session that is not open, by its hash or a unique prefix of at least 8 digits.

        Raises SessionNotFound or StoreError.
        """
        return self._blobs.get(self._known(session), sha256)

    def is_running(self, session: str) -> bool:
        """Whether a living process has the session open for writing."""
        query = (
            "SELECT 1 FROM session JOIN process ON process.id = session.owner "
            "WHERE workspace = %s AND session.id = %s AND is_alive(beat)"
        )
        return self._row(query, (self.workspace, session)) is not None

    def require_readable(self, session: str) -> None:
        """Raise SessionNotFound if no session has this id."""
        self._known(session)

    def require_free(self, session: str) -> None:
        """Do nothing: nothing else can be in the place of a session."""

    def require_lock(self, session: str) -> None:
        """Do nothing: nothing else can be in the place of a session's lock."""

    # --- names ----------------------------------------------------------------------------------------------------

    def sessions(self) -> Sequence[str]:
        """Return the ids in order: that of our own ids is the one in which the sessions were created."""
        rows = self.database.rows("SELECT id FROM session WHERE workspace = %s", (self.workspace,))
        return sorted(str(id) for (id,) in rows)

    def count(self) -> int:
        return int(self.database.rows("SELECT count(*) FROM session WHERE workspace = %s", (self.workspace,))[0][0])

    def count_open(self) -> int:
        """Count the sessions that a living process has open for writing."""
        query = (
            "SELECT count(*) FROM session JOIN process ON process.id = owner WHERE workspace = %s AND is_alive(beat)"
        )
        return int(self.database.rows(query, (self.workspace,))[0][0])

    def latest(self) -> str | None:
        row = self._row("SELECT id FROM session WHERE workspace = %s ORDER BY changed DESC LIMIT 1", (self.workspace,))
        return str(row[0]) if row else None

    def last_seq(self, session: str) -> int:
        """Return the `seq` of a session's last event; 0 if it does not exist."""
        row = self._row("SELECT seq FROM session WHERE workspace = %s AND id = %s", (self.workspace, session))
        return int(row[0]) if row else 0

    size = last_seq

    def exists(self, session: str) -> bool:
        return self._number(session) > 0

    def resolve(self, prefix: str) -> str:
        """Return the session that `prefix` names: an id, the unique beginning of one, or "last".

        Raises SessionNotFound: it names none or several; the message lists candidates.
        """
        if is_session_id(prefix) and self.exists(prefix):
            return prefix
        return resolve_name(prefix, self.sessions(), self.latest, f"the workspace {self.workspace}")

    def _known(self, session: str) -> int:
        return self._number(session) or _not_found(session)

    def _number(self, session: str) -> int:
        return self.database.run(lambda connection: self._find(connection, session))

    def _find(self, connection: Connection, session: str) -> int:
        query = "SELECT number FROM session WHERE workspace = %s AND id = %s"
        row = connection.execute(query, (self.workspace, session)).fetchone()
        return int(row[0]) if row else 0

    def _row(self, query: Query, values: Sequence[object]) -> tuple[Any, ...] | None:
        return next(iter(self.database.rows(query, values)), None)


def _storage(address: str) -> ObjectStorage | None:
    if not address:
        return None
    from lmagent.cluster.objects import ObjectStorage  # loads its library

    return ObjectStorage(address)


def _has_ended(row: SessionRow) -> bool:
    """Whether nothing needs a session; no process resumes a sub-agent that was interrupted."""
    is_left = row.status == "interrupted" and not row.child
    return not (row.pinned or row.waiting_for or row.status == "running" or is_left)


def _require_id(session: str) -> None:
    if not is_session_id(session):
        raise StoreError(f"{session!r} cannot be the id of a session", fix=SESSION_RULE)


def _not_found(session: str) -> NoReturn:
    raise SessionNotFound(f"there is no session {session}", terminal="lmagent sessions list")
