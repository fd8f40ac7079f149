"""The sessions in the tables, as the index reads them. Instead of an offset, it has the number of the log."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from lmagent.cluster.database import Connection, Database
from lmagent.cluster.reading import read_lines
from lmagent.core.events import DurableEvent
from lmagent.store.port import EventPlace, Facts, LogPosition
from lmagent.store.scan import LogLine, log_line

_LOGS = (
    "SELECT session.id, seq, extract(epoch FROM changed), number, is_alive(beat) "
    "FROM session LEFT JOIN process ON process.id = session.owner WHERE workspace = %s"
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
        wanted: dict[int, list[int]] = defaultdict(list)
        for place in places:
            wanted[place.start].append(place.seq)
        found = self._database.run(lambda connection: _lines(connection, wanted))
        events = {key: log_line(key[1], 0, line).event for key, line in found.items()}
        pairs = ((place, events.get((place.start, place.seq))) for place in places)
        return [(place, event) for place, event in pairs if event is not None]


def _placed(line: LogLine, number: int) -> LogLine:
    return LogLine(line.number, number, line.raw, line.kind, line.seq, line.event, line.reason)


def _lines(connection: Connection, wanted: dict[int, list[int]]) -> dict[tuple[int, int], bytes]:
    query = "SELECT seq, line FROM event WHERE session = %s AND seq = ANY(%s)"
    found: dict[tuple[int, int], bytes] = {}
    for number, seqs in wanted.items():
        for seq, line in connection.execute(query, (number, seqs), binary=True):
            found[number, int(seq)] = bytes(line) + b"\n"
    return found
