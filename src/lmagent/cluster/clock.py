"""The clock of a cluster: all its machines have the database's time, so that nothing is due earlier on one of them."""

from __future__ import annotations

from lmagent.cluster.database import Database
from lmagent.core.ports import Clock


class ClusterClock:
    """The machine's clock, put right by the difference that the process last measured."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self.monotonic = clock.monotonic
        self.sleep = clock.sleep

    def now(self) -> float:
        return self._clock.now() + self._database.ahead
