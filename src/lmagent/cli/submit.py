"""`lmagent submit TASK`: a task for a scheduler."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from lmagent.cli.options import workspace_option
from lmagent.cli.piped import with_piped


@click.command()
@click.argument("task", required=False, default="")
@workspace_option
def submit(task: str, workspace: Path | None) -> int:
    """Put a task into the inbox of a workspace; a scheduler does it in a session of its own.

    Text piped in is added to the task. Any program may do the same: a text file NAME.task in .lmagent/inbox.
    """
    return submit_task(with_piped(task, needed=not task), workspace)


def submit_task(task: str, workspace: Path | None) -> int:
    """Put it in and say where it lies."""
    from lmagent.app.wiring import HostOptions, load_settings
    from lmagent.config.workspace import open_workspace
    from lmagent.schedule.inbox import Inbox
    from lmagent.store.lock import is_held

    if not task.strip() and sys.stdin.isatty():
        raise click.UsageError('no task given: lmagent submit "what to do"')
    path = open_workspace(load_settings(HostOptions(workspace)).workspace).path
    taken = Inbox(path / ".lmagent").submit(task, time.time())
    click.echo(f"submitted: {taken}")
    if not is_held(path / ".lmagent" / "scheduler.lock"):
        say = "no lmagent scheduler runs here; it is done when one does, or a chat in this folder, where you trust it"
        click.echo(say, err=True)
    return 0
