"""`lmagent plan …`: decide on a plan that waits, from another process or a script."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lmagent.cli.groups import CommandGroup
from lmagent.cli.options import completed_by, flags, model_options, server_options, workspace_option

if TYPE_CHECKING:
    from lmagent.app.host import Host
    from lmagent.core.commands import DecidePlan
    from lmagent.core.work import Plan
    from lmagent.engine.state import SessionState
    from lmagent.store.jsonl import JsonlStore


@click.group(cls=CommandGroup, default="show")
@workspace_option
@click.pass_context
def plan(ctx: click.Context, workspace: Path | None) -> None:
    """Show the plan of a session, approve it, reject it or have it revised."""
    ctx.obj = workspace


@plan.command()
@click.argument("session", shell_complete=completed_by("session_ids"), required=False)
@click.option("--json", "as_json", is_flag=True, help="As JSON, to be edited and approved with --plan.")
@click.pass_context
def show(ctx: click.Context, session: str | None, as_json: bool) -> int:
    """Show the plan that waits, or the one that was approved, and how far it is."""
    from lmagent.app.records import open_records
    from lmagent.core.errors import ConfigError
    from lmagent.engine import worktext
    from lmagent.planning.plans import plan_json, plan_text
    from lmagent.tools.sanitize import visible

    store = open_records(ctx.obj).store
    state = _state(store, store.resolve(session) if session else _waiting(store))
    work = state.work
    found = work.proposal.plan if work.proposal is not None else work.plan
    if found is None:
        raise ConfigError(
            f"session {state.session} has no plan",
            fix='lmagent --plan "TASK" makes one; lmagent --continue resumes an approved one',
        )
    if as_json:
        click.echo(plan_json(found), nl=False)
        return 0
    click.echo(visible(plan_text(found)))
    if work.proposal is not None:
        click.echo(f"\nIt waits: lmagent plan approve|revise|reject {state.session}")
    else:
        steps = [task for task in work.tasks.values() if task.kind == "step"]
        click.echo(f"\nApproved; {worktext.counted(steps)} steps are over:\n{visible(worktext.rows(steps))}")
    return 0


@plan.command()
@click.argument("session", shell_complete=completed_by("session_ids"), required=False)
@click.option("--plan", "file", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="The plan, edited.")
@click.option("--json", "as_json", is_flag=True, help="Print events as JSON lines.")
@model_options
@click.pass_context
def approve(ctx: click.Context, session: str | None, file: Path | None, as_json: bool, **options: Any) -> int:
    """Approve the plan, and carry it out."""
    from lmagent.core.commands import DecidePlan

    command = DecidePlan(decision="approved", plan=_read(file) if file is not None else None, by="cli")
    if session is None:
        from lmagent.app.records import open_records

        session = _waiting(open_records(ctx.obj).store)
    return _carry_out(ctx.obj, session, command, options, as_json=as_json)


@plan.command()
@click.argument("session", shell_complete=completed_by("session_ids"))
@click.argument("words", nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="Print events as JSON lines.")
@model_options
@click.pass_context
def revise(ctx: click.Context, session: str, words: tuple[str, ...], as_json: bool, **options: Any) -> int:
    """Say what should be otherwise, and have it planned anew."""
    from lmagent.core.commands import DecidePlan

    command = DecidePlan(decision="revise", feedback=" ".join(words), by="cli")
    return _carry_out(ctx.obj, session, command, options, as_json=as_json)


@plan.command()
@click.argument("session", shell_complete=completed_by("session_ids"))
@server_options
@click.pass_context
def reject(ctx: click.Context, session: str, **options: Any) -> int:
    """Reject the plan; nothing is done."""
    from lmagent.core.commands import DecidePlan

    async def do(host: Host) -> int:
        opened = await host.open_session(session)
        await opened.send(DecidePlan(decision="rejected", by="cli"))
        click.echo("rejected")
        return 0

    return _with_host(ctx.obj, options, do, attended=False)


def _state(store: JsonlStore, session: str) -> SessionState:
    from lmagent.engine.state import SessionState

    state = SessionState()
    for event in store.read(session):
        state.apply(event)
    return state


def _waiting(store: JsonlStore) -> str:
    from lmagent.core.errors import ConfigError

    waiting = [name for name in store.sessions() if _state(store, name).work.proposal is not None]
    if len(waiting) == 1:
        return waiting[0]
    if not waiting:
        raise ConfigError(
            "no plan waits in this workspace",
            fix='lmagent --plan "TASK" makes one; lmagent --continue resumes an approved one',
        )
    raise ConfigError(f"{len(waiting)} plans wait: {', '.join(waiting[-5:])}", fix="name the session")


def _read(file: Path) -> Plan:
    from lmagent.core.errors import ConfigError
    from lmagent.planning.plans import Unusable, read_plan

    found = read_plan(file.read_text(encoding="utf-8", errors="replace"))
    if isinstance(found, Unusable):
        raise ConfigError(f"{file} is no plan that can be followed: {found.words}", fix="nothing was decided")
    return found


def _carry_out(
    workspace: Path | None, session: str, command: DecidePlan, options: dict[str, Any], *, as_json: bool
) -> int:
    from lmagent.headless.oneshot import TaskRequest, run_task

    async def do(host: Host) -> int:
        return await run_task(host, TaskRequest("", session, as_json, decision=command))

    return _with_host(workspace, options, do, attended=not as_json and sys.stdin.isatty() and sys.stderr.isatty())


def _with_host(
    workspace: Path | None, options: dict[str, Any], do: Callable[[Host], Awaitable[int]], *, attended: bool
) -> int:
    import anyio

    from lmagent.app.wiring import HostOptions, open_host

    async def run() -> int:
        # Otherwise opening the session would approve the plan before this decision arrives.
        settings = {**flags(**options), "approve_plans": False}
        given = HostOptions(workspace, settings, options.get("record"), options.get("replay"), attended)
        host = await open_host(given, say=lambda text: click.echo(text, err=True))
        try:
            return await do(host)
        finally:
            await host.aclose()

    return anyio.run(run)
