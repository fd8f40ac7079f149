"""`lmagent config …`."""

from __future__ import annotations

from pathlib import Path

import click

from lmagent.app import settings
from lmagent.cli.shared import WorkspaceGroup, group_workspace_option, json_option, workspace_option

folder_argument = click.argument("folder", required=False, type=click.Path(path_type=Path))


@click.group(cls=WorkspaceGroup, invoke_without_command=True)
@workspace_option
@click.option("--origin", is_flag=True, help="Say where each value comes from.")
@json_option
@click.pass_context
def config(ctx: click.Context, workspace: Path | None, origin: bool, as_json: bool) -> None:
    """Show the configuration and where each value comes from."""
    if ctx.invoked_subcommand is None:
        click.echo(settings.show_settings(workspace, origin=origin, as_json=as_json))


@config.command("import")
@click.argument("file", type=click.Path(exists=True, path_type=Path))
@group_workspace_option
def import_(workspace: Path | None, file: Path) -> None:
    """Take over a config.json of agent_computer, an .env, an mcp.json or a cron.json."""
    report = settings.import_settings(file, workspace)
    for what, where in report.taken:
        click.echo(f"took {what} → {where}")
    for what, why in report.left:
        click.echo(f"left {what}: {why}")


@config.command("set")
@click.argument("name")
@click.argument("value")
@group_workspace_option
def set_(workspace: Path | None, name: str, value: str) -> None:
    """Set a setting in your own configuration; a key goes to your .env, which only you can read."""
    click.echo(settings.set_setting(workspace, name, value))


@config.command("unset")
@click.argument("name")
@group_workspace_option
def unset(workspace: Path | None, name: str) -> None:
    """Take a setting out of your own configuration, so that its default holds again."""
    click.echo(settings.set_setting(workspace, name, None))


@config.command("trust")
@folder_argument
@group_workspace_option
def trust(workspace: Path | None, folder: Path | None) -> None:
    """Trust a folder: its own configuration may loosen permissions and choose the server, and its jobs and
    hooks run.

    Trust ends for a file when the file changes.
    """
    click.echo(settings.trust_workspace(folder or workspace))


@config.command("untrust")
@folder_argument
@group_workspace_option
def untrust(workspace: Path | None, folder: Path | None) -> None:
    """Stop trusting a folder: its own configuration may only be stricter than yours again, and its jobs wait."""
    click.echo(settings.untrust_workspace(folder or workspace))
