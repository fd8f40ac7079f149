"""Due: the decision about a job at a moment. Pure; `decide` writes nothing."""

from __future__ import annotations

from lmagent.schedule.jobs import CronJob
from lmagent.schedule.ledger import WRONG_CLOCK, JobHistory, LedgerEntry

GRACE = 60.0  # seconds by which a time may be late and still not count as missed
MOST = 100  # times that `catch_up: all` makes up for; older ones are missed
COUNTED = 1000  # missed times that are counted; the rest is reported as "at least" this many


def decide(job: CronJob, history: JobHistory, now: float) -> list[LedgerEntry]:
    """Return the entries for the ledger, in order: times to run now, and times that are missed for good.

    A job never overlaps itself: times that fall due while its turn runs are decided on when the turn has ended.
    """
    begin = _beginning(job, history, now)
    if begin is not None:
        return [begin]
    if not job.enabled or job.schedule.kind == "startup" or history.busy:
        return []
    times = [at for at in job.schedule.latest(history.horizon, now, MOST + 1) if at not in history.runs]
    if not times:
        return []
    runs = _wanted(job, times, now)
    entries = [LedgerEntry(now, job.id, "claimed", at) for at in runs]
    first_run = runs[0] if runs else None
    before = job.schedule.between(history.horizon, now if first_run is None else first_run - 1, COUNTED)
    if before:
        last = times[-1] if first_run is None else max((at for at in times if at < first_run), default=before[-1])
        entries.insert(0, LedgerEntry(now, job.id, "missed", before[0], until=last, count=len(before)))
    return entries


def next_due(job: CronJob, history: JobHistory, now: float) -> int | None:
    """Return the time at which the job is due next; None for never, or not by the clock."""
    if not job.enabled or job.schedule.kind == "startup":
        return None
    return job.schedule.next(max(history.horizon, now) if history.on else now)


def _beginning(job: CronJob, history: JobHistory, now: float) -> LedgerEntry | None:
    """Return the entry that makes the job's times count from now, if it is new, changed, or switched on or off."""
    if not job.enabled:
        return LedgerEntry(now, job.id, "off") if history.on else None
    schedule = f"{job.schedule.text} ({job.schedule.zone})"
    fresh = not history.on or history.schedule != schedule
    wrong_clock = history.horizon > now + WRONG_CLOCK + (job.schedule.seconds or 0)
    return LedgerEntry(now, job.id, "on", schedule=schedule) if fresh or wrong_clock else None


def _wanted(job: CronJob, times: list[int], now: float) -> list[int]:
    match job.catch_up:
        case "once":
            return times[-1:]
        case "skip":
            return [times[-1]] if now - times[-1] <= GRACE else []
        case "all":
            return times[-MOST:]
