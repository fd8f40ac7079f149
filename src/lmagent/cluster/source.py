"""The sessions in the tables, as the index reads them. Instead of an offset, it has the number of the log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from lmagent.cluster.database import Database
from lmagent.cluster.reading import read_lines
from lmagent.core.events import DurableEvent
from lmagent.store.port import EventPlace, Facts, LogPosition
from lmagent.store.scan import LogLine, log_line

_LOGS = (
    "SELECT session.id, seq, extract(epoch FROM changed), number, is_alive(beat) "
    "FROM session LEFT JOIN process ON process.id = session.owner WHERE workspace = %s"
)
_EVENTS = (
    "SELECT session, seq, line FROM unnest(%s::bigint[], %s::bigint[]) AS wanted (session, seq) "
    "JOIN event USING (session, seq)"
)


class ClusterSource:
    """The sessions of one workspace; the index is in the file `path`."""

    def __init__(self, database: Database, workspace: str, path: Path) -> None:
        self.path = path
        self._database = database
        self._workspace = workspace
        self._running: set[str] | None = None

    def logs(self) -> dict[str, Facts]:
        """Return the facts about all logs. One query also finds which sessions are open in a living process."""
        rows = self._database.rows(_LOGS, (self._workspace,))
        self._running = {str(row[0]) for row in rows if row[4]}
        return {str(id): (int(seq), int(changed * 10**9), int(number)) for id, seq, changed, number, _ in rows}

    def new_lines(self, session: str, facts: Facts, read: LogPosition) -> tuple[bool, Iterator[LogLine]]:
        size, _, number = facts
        continues = read.log in (0, number) and read.seq <= size
        found = read_lines(self._database, number, read.seq if continues else 0, through=size)
        return continues, (_placed(line, number) for line in found if line.event is not None)

    def is_held(self, session: str) -> bool:
        if self._running is None:
            self.logs()
        return session in (self._running or ())

    def events(self, places: Sequence[EventPlace]) -> list[tuple[EventPlace, DurableEvent]]:
        return events_at(self._database, places)


def _placed(line: LogLine, number: int) -> LogLine:
    return LogLine(line.number, number, line.raw, line.kind, line.seq, line.event, line.reason)


def events_at(database: Database, places: Sequence[EventPlace]) -> list[tuple[EventPlace, DurableEvent]]:
    """Return the events at these places, whose `start` is the number of the log; deleted ones are left out."""
    values = ([place.start for place in places], [place.seq for place in places])
    rows = database.run(lambda connection: connection.execute(_EVENTS, values, binary=True).fetchall())
    lines = {(int(number), int(seq)): bytes(line) + b"\n" for number, seq, line in rows}
    found = ((place, lines.get((place.start, place.seq))) for place in places)
    events = ((place, log_line(place.seq, 0, line).event) for place, line in found if line is not None)
    return [(place, event) for place, event in events if event is not None]
