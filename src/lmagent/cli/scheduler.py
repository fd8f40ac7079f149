"""`lmagent submit TASK`, a task for a scheduler, and `lmagent scheduler`, which runs the due work of a workspace."""

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
from lmagent.cli.shared import host_options, loaded_settings, model_options, with_host, workspace_option
from lmagent.cli.streams import with_piped
from lmagent.config.trust import is_trusted
from lmagent.config.workspace import open_workspace
from lmagent.core.errors import StoreError
from lmagent.core.plurals import plural
from lmagent.schedule.crontab import cron_list, list_text
from lmagent.schedule.inbox import Inbox
from lmagent.schedule.jobs import read_jobs
from lmagent.schedule.rights import read_rights
from lmagent.schedule.scheduler import Scheduler
from lmagent.store.lock import is_held
from lmagent.tools.sanitize import printable

if TYPE_CHECKING:
    from lmagent.app.host import Host

allow_option = click.option(
    "--allow", multiple=True, metavar="RULE", help="Allow this without a question: 'shell(git log *)'."
)


@click.command()
@click.argument("task", required=False, default="")
@workspace_option
@click.option("--permission", type=click.Choice(["auto", "normal", "manual"]), help="Permission mode of the task.")
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
    loaded = loaded_settings(workspace)
    path = open_workspace(loaded.workspace).path
    click.echo(f"submitted: {Inbox(path / '.lmagent').submit(task, time.time(), rights)}")
    if not is_trusted(loaded.settings.agent_data_dir, path):
        click.echo("the tasks of a folder are done once you trust it: lmagent config trust", err=True)
    elif not is_held(path / ".lmagent" / "scheduler.lock"):
        click.echo("no lmagent scheduler runs here; it is done when one does, or a chat in this folder", err=True)
    return 0


@click.command()
@workspace_option
@click.option(
    "--interval",
    "--scheduler-interval",
    "scheduler_interval",
    type=click.FloatRange(min=0.1, max=3600),
    help="Seconds between two looks at the inbox and at other processes' sessions.",
)
@model_options
def scheduler(workspace: Path | None, **options: Any) -> int:
    """Run the due work of a workspace: waiting sessions, tasks of the inbox, cron jobs.

    It asks no questions: a call that needs an approval is denied, unless --permission or a rule allows it. Any number
    of schedulers may run beside each other. SIGTERM and Ctrl+C end it; the next one resumes its work.
    """
    return with_host(host_options(workspace, options), _serve)


async def _serve(host: Host) -> int:
    gc.freeze()
    gc.enable()
    jobs = len(read_jobs(host.workspace).jobs)
    _log(f"scheduling {host.workspace}; {plural(jobs, 'cron job')}")
    if jobs:
        with suppress(StoreError):  # the scheduler itself reports an unreadable history
            click.echo(printable(list_text(cron_list(host.workspace))))
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
    click.echo(f"{time.strftime('%H:%M:%S')}  {printable(text)}")
