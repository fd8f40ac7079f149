"""The store: all sessions of a workspace, in the tables."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from lmagent.cluster.blobs import ClusterBlobs
from lmagent.cluster.database import Connection
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

__all__ = ["ClusterLog", "ClusterStore"]

_TAKE = "UPDATE session SET epoch = epoch + 1, owner = %s WHERE number = %s RETURNING epoch"


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
            row = connection.execute(_TAKE, (owner, number)).fetchone()
            assert row is not None
            return number, int(row[0])

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
                raise _busy(session, str(found[0]))
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
        """Delete a session with its blobs. Raises SessionNotFound, SessionBusy or StoreError.

        `prune` deletes the objects that no other session has.
        """
        number = self._known(session)

        def work(connection: Connection) -> None:
            with connection.transaction():
                if self._find(connection, session) != number:
                    return  # deleted by an attempt whose answer was lost, or by another process
                self._locked(connection, session)
                connection.execute("DELETE FROM session WHERE number = %s", (number,))
                connection.execute("SELECT pg_notify(%s, %s)", (EVENTS, f"0 {session} {self.workspace}"))

        self.database.run(work)

    def prune(self) -> list[str]:
        """Delete the sessions that the retention ends, and the objects that no session has; return the sessions' ids.

        Sub-agents' sessions end with their parent's. Kept are pinned sessions, and those that are open, interrupted or
        wait for something.

        Raises StoreError if the database or the object storage cannot be used.
        """
        days = self._settings.cluster_retention_days
        deleted = self._delete_ended(days) if days else []
        self._blobs.prune()
        return deleted

    def _delete_ended(self, days: int) -> list[str]:
        query = "SELECT id FROM session WHERE workspace = %s AND changed < clock_timestamp() - %s * interval '1 day'"
        rows = self.database.run(lambda known: known.execute(query, (self.workspace, days)).fetchall())
        old = {str(id) for (id,) in rows}
        with self.index() as index:
            index.refresh()
            known = {row.id: row for row in index.list(2**31, children=True)}
        ended = {id for id in old & known.keys() if _has_ended(known[id])}
        deleted: list[str] = []
        for id in sorted(ended):
            row = known[id]
            if row.child and row.parent in known and row.parent not in ended:
                continue
            with suppress(SessionBusy, SessionNotFound):  # opened or deleted meanwhile
                self.delete(id)
                deleted.append(id)
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

    @cached_property
    def _index(self) -> Path:
        """The file of the index. Its name distinguishes this database from an earlier one at the same address."""
        row = self._row("SELECT mark FROM cluster", ())
        mark = sha256(f"{row} {self.workspace}".encode()).hexdigest()[:24]
        return self._settings.agent_data_dir / "cluster" / f"{mark}.db"

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
        query = "SELECT id FROM session WHERE workspace = %s"
        rows = self.database.run(lambda connection: connection.execute(query, (self.workspace,)).fetchall())
        return sorted(str(id) for (id,) in rows)

    def count(self) -> int:
        row = self._row("SELECT count(*) FROM session WHERE workspace = %s", (self.workspace,))
        return int(str(row[0])) if row else 0

    def count_open(self) -> int:
        """Count the sessions that a living process has open for writing."""
        query = (
            "SELECT count(*) FROM session JOIN process ON process.id = owner WHERE workspace = %s AND is_alive(beat)"
        )
        row = self._row(query, (self.workspace,))
        return int(str(row[0])) if row else 0

    def latest(self) -> str | None:
        row = self._row("SELECT id FROM session WHERE workspace = %s ORDER BY changed DESC LIMIT 1", (self.workspace,))
        return str(row[0]) if row else None

    def last_seq(self, session: str) -> int:
        """Return the `seq` of a session's last event; 0 if it does not exist."""
        row = self._row("SELECT seq FROM session WHERE workspace = %s AND id = %s", (self.workspace, session))
        return int(str(row[0])) if row else 0

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

    def _row(self, query: str, values: Sequence[object]) -> tuple[object, ...] | None:
        return self.database.run(lambda connection: connection.execute(query.encode(), values).fetchone())


def _storage(address: str) -> ObjectStorage | None:
    if not address:
        return None
    from lmagent.cluster.objects import ObjectStorage  # loads its library

    return ObjectStorage(address)


def _has_ended(row: SessionRow) -> bool:
    return not (row.pinned or row.waiting_for or row.status in ("running", "interrupted"))


def _require_id(session: str) -> None:
    if not is_session_id(session):
        raise StoreError(f"{session!r} cannot be the id of a session", fix=SESSION_RULE)


def _not_found(session: str) -> NoReturn:
    raise SessionNotFound(f"there is no session {session}", terminal="lmagent sessions list")


def _busy(session: str, owner: str) -> SessionBusy:
    return SessionBusy(
        f"session {session} is in use by process {owner}",
        fix="stop that process, or work on a copy",
        terminal=f"stop that process, or work on a copy: lmagent sessions fork {session}",
    )
