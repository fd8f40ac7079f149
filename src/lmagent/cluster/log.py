"""The log of one session in the tables, open for writing.

An append is one statement. It moves `session.seq` from n-1 to n only where the epoch and the owner are still the
writer's, and inserts the event. So a writer that lost the session cannot write, however long it was stopped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import anyio

from lmagent.cluster.blobs import ClusterBlobs
from lmagent.cluster.database import Connection
from lmagent.cluster.listening import EVENTS
from lmagent.cluster.presence import Presence
from lmagent.cluster.reading import read_lines
from lmagent.cluster.threads import in_thread
from lmagent.core.errors import SessionTaken, StoreError
from lmagent.core.events import DurableEvent
from lmagent.core.ports import Clock, Damage
from lmagent.store.log import missing_beginning, stamp

_NOTE = f"pg_notify('{EVENTS}', %(seq)s || ' ' || %(id)s || ' ' || %(workspace)s)"

_APPEND = f"""
WITH moved AS (
    UPDATE session SET seq = %(seq)s, changed = clock_timestamp()
    WHERE number = %(number)s AND epoch = %(epoch)s AND owner = %(owner)s AND seq = %(seq)s - 1
    RETURNING number, watched),
added AS (INSERT INTO event (session, seq, epoch, line) SELECT number, %(seq)s, %(epoch)s, %(line)b FROM moved)
SELECT number, CASE WHEN watched > clock_timestamp() THEN {_NOTE} END FROM moved
"""

_BEGIN = f"""
WITH made AS (
    INSERT INTO session (workspace, id, owner, seq) VALUES (%(workspace)s, %(id)s, %(owner)s, %(seq)s)
    ON CONFLICT DO NOTHING RETURNING number),
added AS (INSERT INTO event (session, seq, epoch, line) SELECT number, %(seq)s, 1, %(line)b FROM made)
SELECT number, {_NOTE} FROM made
"""

_LOOK = """
SELECT session.number, session.epoch = %(epoch)s AND session.owner IS NOT DISTINCT FROM %(owner)s,
    event.line IS NOT DISTINCT FROM %(line)b, process.name
FROM session LEFT JOIN event ON event.session = session.number AND event.seq = %(seq)s
    LEFT JOIN process ON process.id = session.owner
WHERE session.workspace = %(workspace)s AND session.id = %(id)s
"""


class ClusterLog:
    """The log of one session, open for writing by this process alone.

    Args:
        blobs: those of its workspace.
        number: the session's number in the tables; 0 before its first event.
    """

    session: str
    damage: Sequence[Damage]

    def __init__(
        self,
        workspace: str,
        session: str,
        presence: Presence,
        blobs: ClusterBlobs,
        clock: Clock,
        *,
        number: int = 0,
        epoch: int = 1,
    ) -> None:
        self.session = session
        self.damage = ()
        self.number = number
        self._workspace = workspace
        self._presence = presence
        self.database = presence.database
        self._blobs = blobs
        self._clock = clock
        self._owner = presence.id if number else 0
        self._epoch = epoch
        self._seq = 0
        self._opened: list[DurableEvent] | None = []
        self._opened_seq = 0
        self._order = anyio.Lock()
        self._refusal: StoreError | None = None
        self._is_released = False

    def load(self) -> None:
        """Read the events that are in the log. Raise StoreError."""
        events: list[DurableEvent] = []
        damage: list[Damage] = []
        for line in read_lines(self.database, self.number):
            self._seq = max(self._seq, line.seq)
            if line.event is not None:
                events.append(line.event)
            else:
                damage.append(Damage(line.number, line.reason, torn=False, size=len(line.raw)))
        self._opened, self._opened_seq = events, self._seq
        self.damage = (*missing_beginning(events), *damage)

    def events(self) -> Iterable[DurableEvent]:
        """Return the events that were in the log when it was opened, in order.

        The first call hands them over, since a long log is large; a later call reads them again.
        """
        events, self._opened = self._opened, None
        return events if events is not None else self._read_again()

    def _read_again(self) -> Iterable[DurableEvent]:
        for line in read_lines(self.database, self.number, through=self._opened_seq):
            if line.event is not None:
                yield line.event

    async def append(self, event: DurableEvent, *, sync: bool = False) -> DurableEvent:
        """Write the event and return it with its `seq`, and with `id` and `ts` if it had none.

        It is on the database's disk when this returns, with and without `sync`. A cancelled task has either written
        its event or not begun.

        Raises:
            SessionTaken: another process has the session now.
            StoreError: the database cannot be reached; whether the event was written shows when the log is opened.
        """
        async with self._order:
            if self._refusal is not None:
                raise self._refusal
            stamped, line = stamp(event, self._seq + 1, self._clock)
            try:
                await in_thread(lambda: self._write(self._seq + 1, line[:-1]))
            except StoreError as error:
                self._refusal = error
                raise
            self._seq += 1
            return stamped

    def _write(self, seq: int, line: bytes) -> None:
        self._owner = self._owner or self._presence.id
        values: dict[str, object] = {
            "workspace": self._workspace,
            "id": self.session,
            "number": self.number,
            "owner": self._owner,
            "epoch": self._epoch,
            "seq": seq,
            "line": line,
        }
        self.number = self.database.run(lambda connection: self._written(connection, values))
        self._presence.written.add(self.number)

    def _written(self, connection: Connection, values: dict[str, object]) -> int:
        """Return the session's number once the event is in its log. Raise StoreError if it cannot be."""
        row = connection.execute(_APPEND if self.number else _BEGIN, values).fetchone()
        if row is None:  # the answer to an earlier attempt was lost, or another process has the session
            row = connection.execute(_LOOK, values).fetchone()
            if row is None or (self.number and row[0] != self.number):
                raise SessionTaken(f"session {self.session} was deleted while it was open")
            _, is_owned, is_there, owner = row
            if not (is_owned and is_there):
                raise self._taken(owner)
        return int(row[0])

    def _taken(self, owner: str | None) -> StoreError:
        if not self.number:
            return StoreError(f"there is a session {self.session} already")
        who = f"process {owner}" if owner else "another process"
        return SessionTaken(
            f"session {self.session} was taken over by {who}: the heartbeat of this process was late. "
            "This process writes nothing more in it",
            fix="open the session again when that process has ended",
            terminal=f"lmagent --resume {self.session}",
        )

    async def put_blob(self, content: bytes) -> str:
        """Keep `content` and return its SHA-256 in hexadecimal. Raise StoreError if it could not be written."""
        return await in_thread(lambda: self._blobs.put(self._known(), content))

    async def adopt_blob(self, path: Path) -> str:
        """Move a file into the blobs and return its SHA-256. Raise StoreError if it could not be moved."""
        return await in_thread(lambda: self._blobs.adopt(self._known(), path))

    def get_blob(self, sha256: str) -> bytes:
        """Return the content of a blob, by its hash or a unique prefix of at least 8 digits.

        Raises StoreError if the blob does not exist, or its content no longer matches its hash.
        """
        return self._blobs.get(self._known(), sha256)

    def _known(self) -> int:
        if not self.number:
            raise StoreError(f"session {self.session} has no event yet, and can have no artifacts")
        return self.number

    def close(self) -> None:
        if self.number and not self._is_released:
            self._is_released = True
            self._presence.release(self.number, self._epoch, self._owner)
        self._refusal = self._refusal or StoreError(f"session {self.session} is closed")
