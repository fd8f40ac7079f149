"""Cron: the scheduled jobs."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

from anyio import to_thread
from msgspec import Meta, Struct, to_builtins

from lmagent.core.errors import ConfigError
from lmagent.core.events import PermissionMode
from lmagent.gateway.http.errors import Refusal, refusing
from lmagent.gateway.http.route import Call, Routes
from lmagent.schedule.crontab import CronList, CronRow, cron_list, next_times
from lmagent.schedule.jobs import JobFault, add_job, change_job, read_jobs, remove_job, set_enabled
from lmagent.schedule.scheduler import Scheduler

ROUTES = Routes()

SHOWN = 3  # times that a preview lists

Line = Annotated[str, Meta(max_length=300)]


class JobFields(Struct, frozen=True, forbid_unknown_fields=True):
    """A job as clients may write it. Delivery of the result and rules of its own can only be set in the file."""

    schedule: Line
    prompt: Annotated[str, Meta(max_length=100_000)]  # the message to the agent
    name: Line = ""  # for display
    timezone: Line = ""  # IANA name; empty for this machine's
    session_id: Line = ""  # the session that it continues; empty for a new one each time
    catch_up: Literal["", "once", "skip", "all"] = ""  # handling of missed times
    permission: PermissionMode | Literal[""] = ""  # permission mode of its turns; empty for that of the settings
    enabled: bool = True  # whether it runs on schedule


class NewJob(JobFields, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job, and its id in the file."""

    id: Line


class When(Struct, frozen=True):
    """A schedule and its time zone; empty for this machine's."""

    schedule: Line
    timezone: Line = ""


class Due(Struct, frozen=True):
    """The next times of a schedule in Unix seconds; empty if it has no times."""

    times: tuple[int, ...]
    timezone: str


class JobChanged(Struct, frozen=True, omit_defaults=True):
    """A job that was written to a file, removed, switched or started; `job` names the run that was started."""

    ok: bool
    id: str
    file: str = ""
    job: str = ""
    enabled: bool | None = None


class Reloaded(Struct, frozen=True):
    """The jobs of the files; `ok` only if the files have no problems."""

    ok: bool
    jobs: tuple[CronRow, ...]
    problems: tuple[str, ...]


@ROUTES.get("/api/cron", "The jobs that run by the clock")
def list_jobs(call: Call) -> CronList:
    return cron_list(call.gateway.host.workspace, call.gateway.host.store.exists)


@ROUTES.post("/api/cron/{id}/run", "Run a job now", status=202)
async def run_job(call: Call) -> JobChanged:
    """Run a job now. The run is on record before the answer; the gateway's scheduler carries it out."""
    await to_thread.run_sync(_known, call.gateway.host.workspace, call.path["id"])
    job = await Scheduler(call.gateway.runner).run_now(call.path["id"], call.caller)
    return JobChanged(True, call.path["id"], job=job.id)


@ROUTES.post("/api/cron/{id}/toggle", "Switch a job on or off")
def toggle_job(call: Call) -> JobChanged:
    workspace, id = call.gateway.host.workspace, call.path["id"]
    return JobChanged(True, id, enabled=set_enabled(workspace, id, not _known(workspace, id)).enabled)


@ROUTES.post("/api/cron/reload", "Read cron.json again")
def reload_jobs(call: Call) -> Reloaded:
    """Return the jobs of the files. The scheduler reloads changed files by itself, within half a second."""
    found = cron_list(call.gateway.host.workspace, call.gateway.host.store.exists)
    return Reloaded(not found.problems, found.jobs, found.problems)


@ROUTES.post("/api/jobs", "Add a job", status=201)
def create_job(call: Call, body: NewJob) -> JobChanged:
    with _writing():
        fields = {name: value for name, value in to_builtins(body).items() if value != ""}
        job = add_job(call.gateway.host.workspace, fields)
    return JobChanged(True, job.id, file=job.file)


@ROUTES.post("/api/jobs/{id}", "Change a job")
def edit_job(call: Call, body: JobFields) -> JobChanged:
    """Change a job in its file; fields that the body leaves out keep their values."""
    workspace, id = call.gateway.host.workspace, call.path["id"]
    _known(workspace, id)
    with _writing():
        job = change_job(workspace, id, to_builtins(body))
    return JobChanged(True, job.id, file=job.file)


@ROUTES.delete("/api/jobs/{id}", "Remove a job")
def delete_job(call: Call) -> JobChanged:
    workspace, id = call.gateway.host.workspace, call.path["id"]
    _known(workspace, id)
    with _writing():
        remove_job(workspace, id)
    return JobChanged(True, id)


@ROUTES.post("/api/cron/preview", "When a schedule is due next")
def preview(call: Call, body: When) -> Due:
    """Return the next times of a schedule, without writing it."""
    try:
        times, zone = next_times(body.schedule, body.timezone, SHOWN)
    except ValueError as error:
        field = "timezone" if "time zone" in str(error) else "schedule"
        raise Refusal(400, f"invalid_{field}", str(error)) from None
    return Due(times, zone)


@contextmanager
def _writing() -> Generator[None]:
    with refusing(ConfigError, 409, "not_written"):
        try:
            yield
        except JobFault as fault:
            raise Refusal(400, f"invalid_{fault.field}", fault.reason) from None


def _known(workspace: Path, id: str) -> bool:
    """Return whether a job is enabled."""
    found = read_jobs(workspace)
    if id not in found.jobs:
        problems = f": {'; '.join(found.problems)}" if found.problems else ""
        raise Refusal(404, "not_found", f"there is no job {id[:80]!r}{problems}", fix="GET /api/cron lists them")
    return found.jobs[id].enabled
