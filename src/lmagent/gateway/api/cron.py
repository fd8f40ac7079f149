"""Cron: the jobs that run by the clock."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from anyio import to_thread
from msgspec import Meta, Struct, to_builtins

from lmagent.app.crontab import CronList, CronRow, cron_list, next_times
from lmagent.core.errors import ConfigError
from lmagent.core.events import PermissionMode
from lmagent.gateway.http.errors import Refusal
from lmagent.gateway.http.route import Call, Route
from lmagent.schedule.jobs import JobFault, add_job, change_job, read_jobs, remove_job, set_enabled

SHOWN = 3
"""Times of a schedule that a preview gives."""

Line = Annotated[str, Meta(max_length=300)]


class JobFields(Struct, frozen=True, forbid_unknown_fields=True):
    """A job as a client may write it. What hands its result over, and rules of its own, are for the file alone.

    Attributes:
        schedule: when it is due.
        prompt: what the agent is told.
        name: for people.
        timezone: IANA name in which the times are meant; empty for this machine's.
        session_id: the session that it continues; empty for a new one each time.
        catch_up: what becomes of times that were missed.
        permission: permission mode of its turns; empty for that of the settings.
        enabled: whether it runs by the clock.
    """

    schedule: Line
    prompt: Annotated[str, Meta(max_length=100_000)]
    name: Line = ""
    timezone: Line = ""
    session_id: Line = ""
    catch_up: Literal["", "once", "skip", "all"] = ""
    permission: PermissionMode | Literal[""] = ""
    enabled: bool = True


class NewJob(JobFields, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job, and the id that names it in its file."""

    id: Line


class When(Struct, frozen=True):
    """A schedule, and the time zone in which it is meant; empty for this machine's."""

    schedule: Line
    timezone: Line = ""


class Due(Struct, frozen=True):
    """When a schedule is due next, in Unix seconds; none where it is not due by the clock."""

    times: tuple[int, ...]
    timezone: str


class JobWritten(Struct, frozen=True):
    """The job is in its file."""

    ok: bool
    id: str
    file: str


class JobRemoved(Struct, frozen=True):
    """The job is in no file any more; its sessions and its history stay."""

    ok: bool
    id: str


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
    return await to_thread.run_sync(cron_list, call.gateway.host.workspace)


async def run_job(call: Call) -> JobBegun:
    """Run a job now, whatever its schedule says. It is on record when this answers; the gateway's scheduler does it."""
    from lmagent.app.scheduling import Scheduler  # rare, and not light

    await to_thread.run_sync(_known, call.gateway.host.workspace, call.path["id"])
    scheduler = Scheduler(call.gateway.host, call.gateway.say)
    try:
        job = await scheduler.run_now(call.path["id"], call.caller)
    finally:
        scheduler.table.close()
    return JobBegun(True, call.path["id"], job.id)


async def toggle_job(call: Call) -> Switched:
    """Switch a job on or off, in its file."""
    return await to_thread.run_sync(_toggle, call.gateway.host.workspace, call.path["id"])


async def reload_jobs(call: Call) -> Reloaded:
    """What the files say now. The scheduler reads a file that has changed by itself, within half a second."""
    found = await to_thread.run_sync(cron_list, call.gateway.host.workspace)
    return Reloaded(not found.problems, found.jobs, found.problems)


async def create_job(call: Call) -> JobWritten:
    """Add a job to the file of the jobs."""
    fields = {name: value for name, value in to_builtins(call.body).items() if value != ""}
    job = await _written(partial(add_job, call.gateway.host.workspace, fields))
    return JobWritten(True, job.id, job.file)


async def edit_job(call: Call) -> JobWritten:
    """Change a job in its file; what the body does not name stays."""
    workspace, id = call.gateway.host.workspace, call.path["id"]
    await to_thread.run_sync(_known, workspace, id)
    job = await _written(partial(change_job, workspace, id, to_builtins(call.body)))
    return JobWritten(True, job.id, job.file)


async def delete_job(call: Call) -> JobRemoved:
    """Take a job out of its file."""
    workspace, id = call.gateway.host.workspace, call.path["id"]
    await to_thread.run_sync(_known, workspace, id)
    await _written(partial(remove_job, workspace, id))
    return JobRemoved(True, id)


async def preview(call: Call) -> Due:
    """When a schedule is due next. Nothing is written."""
    try:
        times, zone = await to_thread.run_sync(next_times, call.body.schedule, call.body.timezone, SHOWN)
    except ValueError as error:
        field = "timezone" if "time zone" in str(error) else "schedule"
        raise Refusal(400, f"invalid_{field}", str(error)) from None
    return Due(times, zone)


async def _written(change: Callable[[], Any]) -> Any:
    """What a change of the file returns.

    Raises:
        Refusal: the job is not right; the code names the field. Or the file cannot be changed.
    """
    try:
        return await to_thread.run_sync(change)
    except JobFault as fault:
        raise Refusal(400, f"invalid_{fault.field}", fault.reason) from None
    except ConfigError as error:
        raise Refusal(409, "not_written", error.message, fix=error.fix) from None


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
    Route("POST", "/api/jobs", create_job, "Add a job", body=NewJob, answer=JobWritten, status=201, errors=(409,)),
    Route("POST", "/api/cron/preview", preview, "When a schedule is due next", body=When, answer=Due),
    Route("POST", "/api/cron/reload", reload_jobs, "Read cron.json again", answer=Reloaded),
    Route("POST", "/api/cron/{id}/run", run_job, "Run a job now", answer=JobBegun, status=202, errors=(404,)),
    Route("POST", "/api/cron/{id}/toggle", toggle_job, "Switch a job on or off", answer=Switched, errors=(404,)),
    Route("POST", "/api/jobs/{id}", edit_job, "Change a job", body=JobFields, answer=JobWritten, errors=(404, 409)),
    Route("DELETE", "/api/jobs/{id}", delete_job, "Remove a job", answer=JobRemoved, errors=(404, 409)),
)
