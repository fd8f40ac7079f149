"""`lmagent plan …`: decide on a plan that waits, from another process or a script."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from lmagent.app.records import open_records
from lmagent.cli import shared
from lmagent.core.commands import DecidePlan
from lmagent.core.errors import ConfigError
from lmagent.engine import worktext
from lmagent.engine.state import SessionState
from lmagent.headless.oneshot import TaskRequest, run_task
from lmagent.planning.plans import Unusable, plan_json, plan_text, read_plan
from lmagent.tools.sanitize import visible

if TYPE_CHECKING:
    from lmagent.app.host import Host
    from lmagent.app.options import HostOptions
    from lmagent.store.port import SessionStore

NO_PLAN = 'lmagent --plan "TASK" makes one; lmagent --continue resumes an approved one'

session_or_the_only = click.argument("session", shell_complete=shared.completed_by("session_ids"), required=False)


@click.group(cls=shared.WorkspaceGroup, default="show")
@shared.group_workspace_option
def plan() -> None:
    """Show the plan of a session, approve it, reject it or have it revised."""


@plan.command()
@session_or_the_only
@click.option("--json", "as_json", is_flag=True, help="As JSON, to be edited and approved with --plan.")
def show(workspace: Path | None, session: str | None, as_json: bool) -> int:
    """Show the plan that waits, or the one that was approved, and how far it is."""
    store = open_records(workspace).store
    state = _state(store, store.resolve(session) if session else _waiting(store))
    work = state.work
    found = work.proposal.plan if work.proposal is not None else work.plan
    if found is None:
        raise ConfigError(f"session {state.session} has no plan", fix=NO_PLAN)
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
@session_or_the_only
@click.option("--plan", "file", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="The plan, edited.")
@shared.events_option
@shared.model_options
def approve(workspace: Path | None, session: str | None, file: Path | None, **options: Any) -> int:
    """Approve the plan, and carry it out."""
    found = None if file is None else read_plan(file.read_text(encoding="utf-8", errors="replace"))
    if isinstance(found, Unusable):
        raise ConfigError(f"{file} is no plan that can be followed: {found.words}", fix="nothing was decided")
    session = session or _waiting(open_records(workspace).store)
    return _carry_out(workspace, session, DecidePlan(decision="approved", plan=found, by="cli"), options)


@plan.command()
@shared.session_argument
@click.argument("words", nargs=-1, required=True)
@shared.events_option
@shared.model_options
def revise(workspace: Path | None, session: str, words: tuple[str, ...], **options: Any) -> int:
    """Say what should be otherwise, and have it planned anew."""
    command = DecidePlan(decision="revise", feedback=" ".join(words), by="cli")
    return _carry_out(workspace, session, command, options)


@plan.command()
@shared.session_argument
@shared.server_options
def reject(workspace: Path | None, session: str, **options: Any) -> int:
    """Reject the plan; nothing is done."""

    async def do(host: Host) -> int:
        opened = await host.open_session(session)
        await opened.send(DecidePlan(decision="rejected", by="cli"))
        click.echo("rejected")
        return 0

    return shared.with_host(_unapproved(shared.host_options(workspace, options)), do)


def _state(store: SessionStore, session: str) -> SessionState:
    state = SessionState()
    for event in store.read(session):
        state.apply(event)
    return state


def _waiting(store: SessionStore) -> str:
    """Return the only session whose plan waits."""
    waiting = [name for name in store.sessions() if _state(store, name).work.proposal is not None]
    if len(waiting) == 1:
        return waiting[0]
    if not waiting:
        raise ConfigError("no plan waits in this workspace", fix=NO_PLAN)
    raise ConfigError(f"{len(waiting)} plans wait: {', '.join(waiting[-5:])}", fix="name the session")


def _carry_out(workspace: Path | None, session: str, command: DecidePlan, options: dict[str, Any]) -> int:
    as_json = options.pop("as_json")

    async def do(host: Host) -> int:
        return await run_task(host, TaskRequest("", session, as_json, decision=command))

    attended = not as_json and sys.stdin.isatty() and sys.stderr.isatty()
    return shared.with_host(_unapproved(shared.host_options(workspace, options, attended=attended)), do)


def _unapproved(options: HostOptions) -> HostOptions:
    """Return the options without --yes-plan: opening the session would approve the plan before the decision arrives."""
    return replace(options, flags={**options.flags, "approve_plans": False})
