"""`lmagent hooks …`: programs of the user that see, and may stop, what the agent does."""

from __future__ import annotations

from pathlib import Path

import click

from lmagent.app.hooking import hook_files, trial
from lmagent.cli import shared
from lmagent.hooks.show import hook_lines, run_lines


@click.group(cls=shared.WorkspaceGroup, default="list")
@shared.group_workspace_option
def hooks() -> None:
    """List and try hooks.

    A hook is a command that runs before or after a call, on a message, and at other events. It is named in your own
    hooks.json, or in .lmagent/hooks.json or .claude/settings.json of a folder that you trust.
    """


@hooks.command("list")
def list_(workspace: Path | None) -> None:
    """List the hooks by file, and whether they run."""
    files = hook_files(workspace)
    for line in hook_lines(files):
        shared.echo(line)
    if not files:
        shared.say("there are no hooks; docs/hooks.md shows how to write one")


@hooks.command()
@click.argument("event")
@click.option("--tool", default="Bash", show_default=True, help="The tool of the example's call.")
def test(workspace: Path | None, event: str, tool: str) -> int:
    """Run the hooks of an event, such as PreToolUse, with an example; show their exit codes and output."""
    runs = trial(workspace, event, tool)
    for run in runs:
        shared.echo(*run_lines(run))
    if not runs:
        shared.say(f"no hook would run at {event}; lmagent hooks list shows them all")
    return 1 if any(run.failure for run in runs) else 0
