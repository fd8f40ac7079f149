"""The events of all sessions in the tables, in one order for all gateways."""

from __future__ import annotations

from collections.abc import Sequence

from lmagent.cluster.database import Database
from lmagent.cluster.source import events_at
from lmagent.core.events import DurableEvent
from lmagent.store.port import EventPlace

_NUMBERED = """
WITH near AS (
    SELECT *, least(count, number - %(after)s) AS wanted FROM feed_part
    WHERE workspace = %(workspace)s AND number > %(after)s ORDER BY number LIMIT %(limit)s),
part AS (SELECT *, sum(wanted) OVER (ORDER BY number) - wanted AS before FROM near)
SELECT part.number - part.seq + found.seq, session.id, found.seq, part.session, 0
FROM part JOIN session ON session.number = part.session CROSS JOIN LATERAL (
    SELECT seq FROM event WHERE event.session = part.session AND seq > part.seq - wanted AND seq <= part.seq
    ORDER BY seq LIMIT %(limit)s) AS found
WHERE before < %(limit)s ORDER BY 1 LIMIT %(limit)s
"""


class ClusterFeed:
    """Numbers the events of one workspace's sessions. Its methods raise StoreError."""

    def __init__(self, database: Database, workspace: str) -> None:
        self._database = database
        self._workspace = workspace
        self._numbering = ("", 0)

    def refresh(self) -> None:
        """Number the new events."""
        ((mark, last),) = self._database.rows("SELECT mark, last FROM feed_extend(%s)", (self._workspace,))
        self._numbering = (str(mark), int(last))

    def numbering(self) -> tuple[str, int]:
        """Return the mark of the numbering, and its last number. Refresh before."""
        return self._numbering

    def numbered(self, after: int, limit: int) -> list[EventPlace]:
        """Return the events after a number, in order."""
        values = {"workspace": self._workspace, "after": after, "limit": limit}
        return [EventPlace(*row) for row in self._database.rows(_NUMBERED, values)]

    def events(self, places: Sequence[EventPlace]) -> Sequence[tuple[EventPlace, DurableEvent]]:
        """Read the events at these places; deleted ones are left out."""
        return events_at(self._database, places)
