"""`lmagent cron …`: the jobs that run by the clock."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lmagent.app.runner import Runner
from lmagent.cli import shared
from lmagent.cli.scheduler import allow_option
from lmagent.headless.oneshot import exit_code
from lmagent.schedule.crontab import cron_history, cron_list, history_text, list_text
from lmagent.schedule.jobs import add_job, find_job, remove_job, set_enabled
from lmagent.schedule.scheduler import Scheduler
from lmagent.tools.sanitize import printable

if TYPE_CHECKING:
    from lmagent.app.host import Host


@click.group(cls=shared.CommandGroup, default="list")
@shared.group_workspace_option
def cron() -> None:
    """List, add, switch, run and remove the jobs that run by the clock.

    They are in cron.json of the workspace, or in .lmagent/cron.json. `lmagent scheduler` runs them, and so does a
    chat in a trusted folder.
    """


@cron.command("list")
@shared.json_lines_option
@click.pass_obj
def list_(workspace: Path | None, as_json: bool) -> int:
    """List the jobs, those that are switched off as well; exit code 1 if something is wrong with a file."""
    found = cron_list(shared.workspace_folder(workspace))
    if as_json:
        shared.print_json(*found.jobs)
        for problem in found.problems:
            shared.say(f"lmagent: {problem}")
    else:
        click.echo(printable(list_text(found)))
    return 1 if found.problems else 0


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
@click.option("--permission", type=click.Choice(["auto", "normal", "manual"]), help="Permission mode of its turns.")
@allow_option
@click.option("--disabled", is_flag=True, help="Do not switch it on yet.")
@click.pass_obj
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
@click.pass_obj
def remove(workspace: Path | None, id: str) -> None:
    """Remove a job; its sessions and its history stay."""
    remove_job(shared.workspace_folder(workspace), id)
    click.echo(f"removed {id}")


@cron.command()
@click.argument("id")
@click.pass_obj
def toggle(workspace: Path | None, id: str) -> None:
    """Switch a job off, or on again; times that it misses while off are not made up for."""
    folder = shared.workspace_folder(workspace)
    job = set_enabled(folder, id, not find_job(folder, id).enabled)
    click.echo(f"{id} is switched {'on' if job.enabled else 'off'}")


@cron.command("reload")
@click.pass_context
def reload_(ctx: click.Context) -> int:
    """Check the files and show their jobs; a running scheduler reads them by itself when they change."""
    return ctx.invoke(list_, as_json=False)


@cron.command()
@click.argument("id", default="")
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="How many.")
@shared.json_lines_option
@click.pass_obj
def history(workspace: Path | None, id: str, limit: int, as_json: bool) -> None:
    """Show the results of the times at which jobs were due, newest first."""
    rows = cron_history(shared.workspace_folder(workspace), id, limit)
    if as_json:
        shared.print_json(*rows)
    else:
        click.echo(printable(history_text(rows)))


@cron.command()
@click.argument("id")
@shared.model_options
@click.pass_obj
def run(workspace: Path | None, id: str, **options: Any) -> int:
    """Run a job now, and wait for its end; exit codes as for a task."""

    async def do(host: Host) -> int:
        finished = await Scheduler(Runner(host, shared.say, resumable=False), single=True).run_to_its_end(id)
        if finished is not None and finished.answer:
            click.echo(printable(finished.answer))
        return exit_code(finished)

    return shared.with_host(shared.host_options(workspace, options), do)
