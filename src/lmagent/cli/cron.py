"""`lmagent cron …`: the jobs that run by the clock."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec

from lmagent.app.crontab import cron_history, cron_list, history_text, list_text
from lmagent.cli.groups import CommandGroup
from lmagent.cli.options import flags, model_options, workspace_option


@click.group(cls=CommandGroup, default="list")
@workspace_option
@click.pass_context
def cron(ctx: click.Context, workspace: Path | None) -> None:
    """List, add, switch, run and remove the jobs that run by the clock.

    They are in cron.json of the workspace, or in .lmagent/cron.json. `lmagent scheduler` runs them, and so does a
    chat in a trusted folder.
    """
    ctx.obj = workspace


def _workspace(ctx: click.Context) -> Path:
    from lmagent.app.wiring import HostOptions, load_settings
    from lmagent.config.workspace import open_workspace

    return open_workspace(load_settings(HostOptions(ctx.obj)).workspace).path


def _show(text: str) -> None:
    from lmagent.tools.sanitize import printable

    click.echo(printable(text))


@cron.command("list")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@click.pass_context
def list_(ctx: click.Context, as_json: bool) -> int:
    """List the jobs, those that are switched off as well; exit code 1 if something is wrong with a file."""
    found = cron_list(_workspace(ctx))
    if as_json:
        for row in found.jobs:
            click.echo(msgspec.json.encode(row).decode())
        for problem in found.problems:
            click.echo(f"lmagent: {problem}", err=True)
    else:
        _show(list_text(found))
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
@click.option("--allow", multiple=True, metavar="RULE", help="Allow this without a question: 'shell(git log *)'.")
@click.option("--disabled", is_flag=True, help="Do not switch it on yet.")
@click.pass_context
def add(ctx: click.Context, id: str, schedule: str, prompt: str, disabled: bool, **more: Any) -> None:
    """Add a job.

    SCHEDULE is one of: every 30s|5m|2h|1d, daily HH:MM, hourly :MM, startup, or five cron fields such as
    "0 3 * * MON-FRI".
    """
    from lmagent.schedule.jobs import add_job

    fields: dict[str, object] = {"id": id, "name": more.pop("name"), "schedule": schedule, "prompt": prompt}
    fields |= {key: list(value) if key == "allow" else value for key, value in more.items() if value}
    job = add_job(_workspace(ctx), {**fields, "enabled": not disabled})
    click.echo(f"added {job.id} to {job.file}")


@cron.command("rm")
@click.argument("id")
@click.pass_context
def remove(ctx: click.Context, id: str) -> None:
    """Remove a job; its sessions and its history stay."""
    from lmagent.schedule.jobs import remove_job

    remove_job(_workspace(ctx), id)
    click.echo(f"removed {id}")


@cron.command()
@click.argument("id")
@click.pass_context
def toggle(ctx: click.Context, id: str) -> None:
    """Switch a job off, or on again; times that it misses while off are not made up for."""
    from lmagent.schedule.jobs import find_job, set_enabled

    workspace = _workspace(ctx)
    job = set_enabled(workspace, id, not find_job(workspace, id).enabled)
    click.echo(f"{id} is switched {'on' if job.enabled else 'off'}")


@cron.command("reload")
@click.pass_context
def reload_(ctx: click.Context) -> int:
    """Check the files and show their jobs; a running scheduler reads them by itself when they change."""
    found = cron_list(_workspace(ctx))
    _show(list_text(found))
    return 1 if found.problems else 0


@cron.command()
@click.argument("id", default="")
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="How many.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@click.pass_context
def history(ctx: click.Context, id: str, limit: int, as_json: bool) -> None:
    """Show the results of the times at which jobs were due, newest first."""
    rows = cron_history(_workspace(ctx), id, limit)
    if as_json:
        for row in rows:
            click.echo(msgspec.json.encode(row).decode())
    else:
        _show(history_text(rows))


@cron.command()
@click.argument("id")
@model_options
@click.pass_context
def run(ctx: click.Context, id: str, **options: Any) -> int:
    """Run a job now, and wait for its end; exit codes as for a task."""
    import anyio

    from lmagent.app.wiring import HostOptions, open_host

    host_options = HostOptions(ctx.obj, flags(**options), options["record"], options["replay"])

    async def do() -> int:
        from lmagent.app.scheduling import Scheduler
        from lmagent.headless.oneshot import exit_code

        host = await open_host(host_options, say=lambda text: click.echo(text, err=True))
        try:
            finished = await Scheduler(host, lambda text: click.echo(text, err=True), single=True).run_to_its_end(id)
        finally:
            await host.aclose()
        if finished is not None and finished.answer:
            _show(finished.answer)
        return exit_code(finished)

    return anyio.run(do)
