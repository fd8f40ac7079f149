"""`lmagent scheduler`: run the due work of a workspace, until stopped."""

from __future__ import annotations

import gc
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lmagent.cli.options import flags, model_options, workspace_option
from lmagent.core.plurals import plural

if TYPE_CHECKING:
    from lmagent.app.host import Host

interval_option = click.option(
    "--interval",
    "--scheduler-interval",
    type=click.FloatRange(min=0.1, max=3600),
    help="Seconds between two looks at the inbox and at other processes' sessions.",
)


@click.command()
@workspace_option
@interval_option
@model_options
def scheduler(workspace: Path | None, interval: float | None, **options: Any) -> int:
    """Run the due work of a workspace: waiting sessions, tasks of the inbox, cron jobs.

    It asks no questions: a call that needs an approval is denied, unless --permission or a rule allows it. Any number
    of schedulers may run beside each other. SIGTERM and Ctrl+C end it; the next one resumes its work.
    """
    return run_scheduler(workspace, interval, options)


def run_scheduler(workspace: Path | None, interval: float | None, options: dict[str, Any]) -> int:
    import anyio

    from lmagent.app.wiring import HostOptions, open_host

    given = flags(**options, scheduler_interval=interval)
    host_options = HostOptions(workspace, given, options["record"], options["replay"])

    async def do() -> int:
        host = await open_host(host_options, say=lambda text: click.echo(text, err=True))
        gc.freeze()
        gc.enable()
        try:
            return await _serve(host)
        finally:
            await host.aclose()

    return anyio.run(do)


async def _serve(host: Host) -> int:
    import anyio

    from lmagent.app.runner import Runner
    from lmagent.core.errors import StoreError, ungrouped
    from lmagent.schedule.crontab import cron_list, list_text
    from lmagent.schedule.jobs import read_jobs
    from lmagent.schedule.scheduler import Scheduler
    from lmagent.tools.sanitize import printable

    jobs = len(read_jobs(host.workspace).jobs)
    _say(f"scheduling {host.workspace}; {plural(jobs, 'cron job')}")
    if jobs:
        with suppress(StoreError):  # the scheduler itself reports an unreadable history
            click.echo(printable(list_text(cron_list(host.workspace))))
    received: list[int] = []
    with ungrouped():
        async with anyio.create_task_group() as tasks:
            service = Scheduler(Runner(host, _say), startup=True)
            if sys.platform != "win32":
                tasks.start_soon(_until_told, tasks.cancel_scope, received)
            await service.run()
    _say("stopped; unfinished turns resume when it is started again")
    return 130 if signal.SIGINT in received else 0


async def _until_told(work: Any, received: list[int]) -> None:
    import anyio

    from lmagent.app.signals import ending

    with anyio.open_signal_receiver(signal.SIGINT, *ending()) as signals:
        async for number in signals:
            received.append(number)
            work.cancel()


def _say(text: str) -> None:
    from lmagent.tools.sanitize import printable  # it quotes tasks and files

    click.echo(f"{time.strftime('%H:%M:%S')}  {printable(text)}")
