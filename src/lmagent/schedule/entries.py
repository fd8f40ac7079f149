"""Entries: the facts of the ledger, and the state of a job that follows from them."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

HISTORY = 500
"""Times of a job that are remembered; older ones are covered by the horizon."""

What = Literal["on", "off", "claimed", "ran", "missed", "delivering", "delivered"]


class LedgerEntry(Struct, frozen=True, omit_defaults=True):
    """One fact.

    Attributes:
        what: `on`: its times count from here, by this schedule. `off`: they do not. `claimed`: it is going to run.
            `ran`: it ended. `missed`: times that will never run. `delivering`, `delivered`: its result.
        at: the time it was due, Unix seconds; the first one, if several were missed.
        by: the surface that asked for it, if it was not the schedule.
    """

    ts: float
    job: str
    what: What
    at: int = 0
    until: int = 0
    count: int = 0
    schedule: str = ""
    session: str = ""
    outcome: str = ""
    by: str = ""


class CronRun(Struct):
    at: int
    stage: What
    session: str = ""
    outcome: str = ""
    delivery: str = ""
    by: str = ""
    count: int = 1
    until: int = 0


class JobHistory(Struct):
    """The state of a job: a fold of its entries.

    Attributes:
        horizon: up to here, Unix seconds, every time has been decided on.
    """

    on: bool = False
    schedule: str = ""
    horizon: float = 0.0
    runs: dict[int, CronRun] = field(default_factory=dict[int, CronRun])

    def unfinished(self, *, delivers: bool) -> list[CronRun]:
        """Return the runs that have not ended; if results are delivered, also those without a delivery."""
        stages = ("claimed", "ran", "delivering") if delivers else ("claimed",)
        return [run for run in self.runs.values() if run.stage in stages]

    @property
    def busy(self) -> bool:
        return any(run.stage == "claimed" for run in self.runs.values())

    def apply(self, entry: LedgerEntry) -> None:
        match entry.what:
            case "on":
                self.on, self.schedule, self.horizon = True, entry.schedule, entry.ts
            case "off":
                self.on = False
            case "claimed":
                self.runs[entry.at] = CronRun(entry.at, "claimed", entry.session, by=entry.by)
                if not entry.by:
                    self.horizon = max(self.horizon, entry.at)
            case "missed":
                self.runs[entry.at] = CronRun(entry.at, "missed", count=entry.count, until=entry.until)
                self.horizon = max(self.horizon, entry.until)
            case _:
                self._settle(entry)
        while len(self.runs) > HISTORY:
            del self.runs[next(iter(self.runs))]

    def _settle(self, entry: LedgerEntry) -> None:
        run = self.runs.get(entry.at)
        if run is None:
            return
        run.stage = entry.what
        if entry.what == "ran":
            run.session, run.outcome = entry.session or run.session, entry.outcome
        else:
            run.delivery = entry.outcome
