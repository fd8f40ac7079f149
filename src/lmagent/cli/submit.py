"""`lmagent submit TASK`: a task for a scheduler."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lmagent.cli.options import workspace_option
from lmagent.cli.piped import with_piped

if TYPE_CHECKING:
    from lmagent.schedule.rights import Rights


@click.command()
@click.argument("task", required=False, default="")
@workspace_option
@click.option("--permission", type=click.Choice(["auto", "normal", "manual"]), help="Permission mode of the task.")
@click.option("--allow", multiple=True, metavar="RULE", help="Allow this without a question: 'shell(git log *)'.")
def submit(task: str, workspace: Path | None, permission: str | None, allow: tuple[str, ...]) -> int:
    """Put a task into the inbox of a workspace; a scheduler does it in a session of its own.

    Text piped in is added to the task. Any program may do the same: a text file NAME.task in .lmagent/inbox.
    """
    from lmagent.schedule.rights import read_rights

    try:
        rights = read_rights(permission, allow)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    return submit_task(with_piped(task, needed=not task), workspace, rights)


def submit_task(task: str, workspace: Path | None, rights: Rights) -> int:
    from lmagent.app.wiring import HostOptions, load_settings
    from lmagent.config.trust import is_trusted
    from lmagent.config.workspace import open_workspace
    from lmagent.schedule.inbox import Inbox
    from lmagent.store.lock import is_held

    if not task.strip() and sys.stdin.isatty():
        raise click.UsageError('no task given: lmagent submit "what to do"')
    loaded = load_settings(HostOptions(workspace))
    path = open_workspace(loaded.workspace).path
    taken = Inbox(path / ".lmagent").submit(task, time.time(), rights)
    click.echo(f"submitted: {taken}")
    if not is_trusted(loaded.settings.agent_data_dir, path):
        click.echo("the tasks of a folder are done once you trust it: lmagent config trust", err=True)
    elif not is_held(path / ".lmagent" / "scheduler.lock"):
        say = "no lmagent scheduler runs here; it is done when one does, or a chat in this folder"
        click.echo(say, err=True)
    return 0
