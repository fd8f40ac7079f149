"""Cron: the jobs that run by the clock."""

from __future__ import annotations

from pathlib import Path

from anyio import to_thread
from msgspec import Struct

from lmagent.app.crontab import CronList, CronRow, cron_list
from lmagent.gateway.http.errors import Refusal
from lmagent.gateway.http.route import Call, Route
from lmagent.schedule.jobs import read_jobs, set_enabled


class JobBegun(Struct, frozen=True):
    """A job that was begun; `job` names this run of it."""

    ok: bool
    id: str
    job: str


class Switched(Struct, frozen=True):
    """Whether a job runs by the clock now."""

    ok: bool
    id: str
    enabled: bool


class Reloaded(Struct, frozen=True):
    """The jobs of the files; `ok` only if nothing is wrong there."""

    ok: bool
    jobs: tuple[CronRow, ...]
    problems: tuple[str, ...]


async def list_jobs(call: Call) -> CronList:
    """The jobs, switched off or not, and what is wrong with their files."""
    return await to_thread.run_sync(cron_list, call.hub.host.workspace)


async def run_job(call: Call) -> JobBegun:
    """Run a job now, whatever its schedule says. It is on record when this answers; the gateway's scheduler does it."""
    from lmagent.app.scheduling import Scheduler  # rare, and not light

    await to_thread.run_sync(_known, call.hub.host.workspace, call.path["id"])
    scheduler = Scheduler(call.hub.host, call.hub.say)
    try:
        job = await scheduler.run_now(call.path["id"], call.caller)
    finally:
        scheduler.table.close()
    return JobBegun(True, call.path["id"], job.id)


async def toggle_job(call: Call) -> Switched:
    """Switch a job on or off, in its file."""
    return await to_thread.run_sync(_toggle, call.hub.host.workspace, call.path["id"])


async def reload_jobs(call: Call) -> Reloaded:
    """What the files say now. The scheduler reads a file that has changed by itself, within half a second."""
    found = await to_thread.run_sync(cron_list, call.hub.host.workspace)
    return Reloaded(not found.problems, found.jobs, found.problems)


def _toggle(workspace: Path, id: str) -> Switched:
    return Switched(True, id, set_enabled(workspace, id, not _known(workspace, id)).enabled)


def _known(workspace: Path, id: str) -> bool:
    """Whether a job is switched on.

    Raises:
        Refusal: there is none of that id.
    """
    found = read_jobs(workspace)
    if id not in found.jobs:
        problems = f": {'; '.join(found.problems)}" if found.problems else ""
        raise Refusal(404, "not_found", f"there is no job {id[:80]!r}{problems}", fix="GET /api/cron lists them")
    return found.jobs[id].enabled


ROUTES = (
    Route("GET", "/api/cron", list_jobs, "The jobs that run by the clock", answer=CronList),
    Route("POST", "/api/cron/reload", reload_jobs, "Read cron.json again", answer=Reloaded),
    Route("POST", "/api/cron/{id}/run", run_job, "Run a job now", answer=JobBegun, status=202, errors=(404,)),
    Route("POST", "/api/cron/{id}/toggle", toggle_job, "Switch a job on or off", answer=Switched, errors=(404,)),
)
