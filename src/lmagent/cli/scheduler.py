"""`lmagent submit`, `lmagent scheduler` and `lmagent cron …`: tasks for a scheduler, the due work, and its jobs."""

from __future__ import annotations

import gc
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import click

from lmagent.app.runner import Runner
from lmagent.app.signals import ending
from lmagent.cli import shared
from lmagent.cli.streams import with_piped
from lmagent.config.trust import is_trusted
from lmagent.config.workspace import open_workspace
from lmagent.core.errors import StoreError
from lmagent.core.plurals import plural
from lmagent.headless.oneshot import exit_code
from lmagent.schedule.crontab import cron_history, cron_list, history_text, list_text
from lmagent.schedule.inbox import Inbox
from lmagent.schedule.jobs import add_job, find_job, read_jobs, remove_job, set_enabled
from lmagent.schedule.rights import read_rights
from lmagent.schedule.scheduler import Scheduler
from lmagent.store.lock import is_held

if TYPE_CHECKING:
    from lmagent.app.host import Host

mode_option = click.option(
    "--permission", type=click.Choice(["auto", "normal", "manual"]), help="Permission mode of its turns."
)
allow_option = click.option(
    "--allow", multiple=True, metavar="RULE", help="Allow this without a question: 'shell(git log *)'."
)


@click.command()
@click.argument("task", required=False, default="")
@shared.workspace_option
@mode_option
@allow_option
def submit(task: str, workspace: Path | None, permission: str | None, allow: tuple[str, ...]) -> int:
    """Put a task into the inbox of a workspace; a scheduler does it in a session of its own.

    Text piped in is added to the task. Any program may do the same: a text file NAME.task in .lmagent/inbox.
    """

    try:
        rights = read_rights(permission, allow)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    task = with_piped(task, needed=not task)
    if not task.strip() and sys.stdin.isatty():
        raise click.UsageError('no task given: lmagent submit "what to do"')
    loaded = shared.loaded_settings(workspace)
    path = open_workspace(loaded.workspace).path
    click.echo(f"submitted: {Inbox(path / '.lmagent').submit(task, time.time(), rights)}")
    if not is_trusted(loaded.settings.agent_data_dir, path):
        click.echo("the tasks of a folder are done once you trust it: lmagent config trust", err=True)
    elif not is_held(path / ".lmagent" / "scheduler.lock"):
        click.echo("no lmagent scheduler runs here; it is done when one does, or a chat in this folder", err=True)
    return 0


@click.command()
@shared.workspace_option
@click.option(
    "--interval",
    "--scheduler-interval",
    "scheduler_interval",
    type=click.FloatRange(min=0.1, max=3600),
    help="Seconds between two looks at the inbox and at other processes' sessions.",
)
@shared.model_options
def scheduler(workspace: Path | None, **options: Any) -> int:
    """Run the due work of a workspace: waiting sessions, tasks of the inbox, cron jobs.

    It asks no questions: a call that needs an approval is denied, unless --permission or a rule allows it. Any number
    of schedulers may run beside each other. SIGTERM and Ctrl+C end it; the next one resumes its work.
    """
    return shared.with_host(shared.host_options(workspace, options), _serve)


async def _serve(host: Host) -> int:
    gc.freeze()
    gc.enable()
    jobs = len(read_jobs(host.workspace).jobs)
    _log(f"scheduling {host.workspace}; {plural(jobs, 'cron job')}")
    if jobs:
        with suppress(StoreError):  # the scheduler itself reports an unreadable history
            shared.echo(list_text(cron_list(host.workspace)))
    received: list[int] = []
    async with anyio.create_task_group() as tasks:
        service = Scheduler(Runner(host, _log), startup=True)
        if sys.platform != "win32":
            tasks.start_soon(_until_signalled, tasks.cancel_scope, received)
        await service.run()
    _log("stopped; unfinished turns resume when it is started again")
    return 130 if signal.SIGINT in received else 0


async def _until_signalled(work: Any, received: list[int]) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, *ending()) as signals:
        async for number in signals:
            received.append(number)
            work.cancel()


def _log(text: str) -> None:
    shared.echo(f"{time.strftime('%H:%M:%S')}  {text}")


# --- cron -------------------------------------------------------------------------------------------------------------


@click.group(cls=shared.WorkspaceGroup, default="list")
@shared.group_workspace_option
def cron() -> None:
    """List, add, switch, run and remove the jobs that run by the clock.

    They are in cron.json of the workspace, or in .lmagent/cron.json. `lmagent scheduler` runs them, and so does a
    chat in a trusted folder.
    """


@cron.command("list")
@shared.json_option
def list_(workspace: Path | None, as_json: bool) -> int:
    """List the jobs, those that are switched off as well; exit code 1 if something is wrong with a file.

    A running scheduler reads the files by itself when they change.
    """
    found = cron_list(shared.workspace_folder(workspace))
    shared.show(as_json, found.jobs, [list_text(found)])
    for problem in found.problems if as_json else ():
        shared.say(f"lmagent: {problem}")
    return 1 if found.problems else 0


cron.add_command(list_, "reload")


@cron.command()
@click.argument("id")
@click.argument("schedule")
@click.argument("prompt")
@click.option("--name", default="", help="For people.")
@click.option("--timezone", default="", metavar="ZONE", help="Such as Europe/Berlin; this machine's without it.")
@click.option("--session-id", default="", metavar="ID", help="Go on in this session; a new one each time without it.")
@click.option("--catch-up", type=click.Choice(["once", "skip", "all"]), help="What becomes of times that were missed.")
@click.option("--command", default="", help="Run this in the sandbox with the result.")
@click.option("--webhook", default="", metavar="URL", help="Post the result there.")
@mode_option
@allow_option
@click.option("--disabled", is_flag=True, help="Do not switch it on yet.")
def add(workspace: Path | None, disabled: bool, name: str, **given: Any) -> None:
    """Add a job.

    SCHEDULE is one of: every 30s|5m|2h|1d, daily HH:MM, hourly :MM, startup, or five cron fields such as
    "0 3 * * MON-FRI".
    """

    needed = ("id", "schedule", "prompt")
    fields = {key: list(value) if key == "allow" else value for key, value in given.items() if value or key in needed}
    job = add_job(shared.workspace_folder(workspace), {**fields, "name": name, "enabled": not disabled})
    click.echo(f"added {job.id} to {job.file}")


@cron.command("rm")
@click.argument("id")
def remove(workspace: Path | None, id: str) -> None:
    """Remove a job; its sessions and its history stay."""
    remove_job(shared.workspace_folder(workspace), id)
    click.echo(f"removed {id}")


@cron.command()
@click.argument("id")
def toggle(workspace: Path | None, id: str) -> None:
    """Switch a job off, or on again; times that it misses while off are not made up for."""
    folder = shared.workspace_folder(workspace)
    job = set_enabled(folder, id, not find_job(folder, id).enabled)
    click.echo(f"{id} is switched {'on' if job.enabled else 'off'}")


@cron.command()
@click.argument("id", default="")
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="How many.")
@shared.json_option
def history(workspace: Path | None, id: str, limit: int, as_json: bool) -> None:
    """Show the results of the times at which jobs were due, newest first."""
    rows = cron_history(shared.workspace_folder(workspace), id, limit)
    shared.show(as_json, rows, [history_text(rows)])


@cron.command()
@click.argument("id")
@shared.model_options
def run(workspace: Path | None, id: str, **options: Any) -> int:
    """Run a job now, and wait for its end; exit codes as for a task."""

    async def do(host: Host) -> int:
        finished = await Scheduler(Runner(host, shared.say, resumable=False), single=True).run_to_its_end(id)
        if finished is not None and finished.answer:
            shared.echo(finished.answer)
        return exit_code(finished)

    return shared.with_host(shared.host_options(workspace, options), do)
