"""Crontab: the list of a workspace's cron jobs and of their runs, for the user."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import islice
from pathlib import Path

from msgspec import Struct

from lmagent.schedule.due import next_due
from lmagent.schedule.jobs import CronJob, find_job, read_jobs
from lmagent.schedule.ledger import Ledger
from lmagent.schedule.times import local_zone, parse_schedule


class CronRow(Struct, frozen=True):
    """A job in a list."""

    id: str
    name: str
    enabled: bool
    schedule: str  # as written in the file
    timezone: str
    catch_up: str  # the treatment of missed times
    session_id: str  # the session that all its runs use; empty for a new one each time
    next: int | None  # Unix seconds; None for never, or not by the clock
    last: int | None  # Unix seconds; None for never
    outcome: str  # of the last run; empty while it runs
    runs: int  # the number of runs in the ledger
    file: str
    line: int
    prompt: str = ""
    permission: str = ""  # empty for the settings' mode
    hands_over: bool = False  # it runs a command with its result, or posts that
    has_session: bool = False  # there is a session of that id: the first run begins it


class CronList(Struct, frozen=True):
    jobs: tuple[CronRow, ...]
    problems: tuple[str, ...] = ()


class HistoryRow(Struct, frozen=True):
    """A time at which a job was due."""

    job: str
    at: int  # Unix seconds; the first time, if several were missed
    what: str  # claimed (it runs, or was cut off), ran, missed, delivering, delivered
    session: str = ""
    outcome: str = ""
    delivery: str = ""  # the outcome of the delivery
    by: str = ""  # the client that started it; empty for the schedule
    missed: int = 0  # how many times were missed


def cron_list(workspace: Path, exists: Callable[[str], bool] = lambda session: False) -> CronList:
    """Return the jobs, disabled ones too; `exists`: whether there is a session of an id."""
    found, ledger, now = read_jobs(workspace), _ledger(workspace), time.time()

    def row(job: CronJob) -> CronRow:
        history = ledger.history(job.id)
        runs = [run for run in history.runs.values() if run.stage != "missed"]
        last = runs[-1] if runs else None
        return CronRow(
            id=job.id,
            name=job.name,
            enabled=job.enabled,
            schedule=job.schedule.text,
            timezone=job.schedule.zone,
            catch_up=job.catch_up,
            session_id=job.session_id,
            next=next_due(job, history, now),
            last=last.at if last else None,
            outcome=last.outcome if last else "",
            runs=len(runs),
            file=job.file,
            line=job.line,
            prompt=job.prompt,
            permission=job.rights.permission,
            hands_over=bool(job.command or job.webhook),
            has_session=bool(job.session_id) and exists(job.session_id),
        )

    return CronList(tuple(map(row, found.jobs.values())), found.problems)


def next_times(schedule: str, zone: str, count: int) -> tuple[tuple[int, ...], str]:
    """Return the next times of a schedule in Unix seconds, and its time zone."""
    found = parse_schedule(schedule, zone or local_zone())
    return tuple(islice(found.times(time.time()), count)), found.zone


def cron_history(workspace: Path, id: str = "", limit: int = 20) -> list[HistoryRow]:
    """Return the runs and missed times of one job or all, the newest first; of removed jobs too."""
    ledger = _ledger(workspace)
    if id and id not in ledger.jobs():
        find_job(workspace, id)
    rows: list[HistoryRow] = []
    for job in [id] if id else ledger.jobs():
        for run in ledger.history(job).runs.values():
            missed = run.count if run.stage == "missed" else 0
            rows.append(HistoryRow(job, run.at, run.stage, run.session, run.outcome, run.delivery, run.by, missed))
    return sorted(rows, key=lambda row: row.at, reverse=True)[:limit]


def list_text(found: CronList) -> str:
    lines = [_line(row) for row in found.jobs] or ["no jobs; lmagent cron add puts one in"]
    return "\n".join((*lines, *(f"! {problem}" for problem in found.problems)))


def history_text(rows: Sequence[HistoryRow]) -> str:
    lines = [
        f"{_when(row.at)}  {row.job:<16}  {f'missed {row.missed}' if row.missed else row.what:<10}  {row.outcome:<11}  "
        f"{row.session}{f'  by {row.by}' if row.by else ''}{f'  delivery: {row.delivery}' if row.delivery else ''}"
        for row in rows
    ]
    return "\n".join(line.rstrip() for line in lines) or "nothing was due yet"


def _ledger(workspace: Path) -> Ledger:
    ledger = Ledger(workspace / ".lmagent", time.time)
    ledger.read()
    return ledger


def _line(row: CronRow) -> str:
    next = "off" if not row.enabled else _when(row.next) if row.next is not None else "at startup"
    last = f"last {_when(row.last)} {row.outcome or 'running'}" if row.last is not None else "never ran"
    zone = "" if row.schedule.startswith(("every", "startup")) else f" {row.timezone}"
    name = f"  {row.name}" if row.name else ""
    return f"{row.id:<16}  {row.schedule + zone:<28}  next {next:<21}  {last}{name}"


def _when(moment: int) -> str:
    """Return a moment in this machine's time zone, with its name."""
    return f"{datetime.fromtimestamp(moment).astimezone():%Y-%m-%d %H:%M %Z}"
