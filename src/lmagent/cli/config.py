"""`lmagent config …`."""

from __future__ import annotations

from pathlib import Path

import click

from lmagent.cli.groups import CommandGroup
from lmagent.cli.options import workspace_option


@click.group(cls=CommandGroup, invoke_without_command=True)
@workspace_option
@click.option("--origin", is_flag=True, help="Say where each value comes from.")
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
@click.pass_context
def config(ctx: click.Context, workspace: Path | None, origin: bool, as_json: bool) -> None:
    """Show the configuration and where each value comes from."""
    ctx.obj = workspace
    if ctx.invoked_subcommand is None:
        from lmagent.app.settings import show_settings

        click.echo(show_settings(workspace, origin=origin, as_json=as_json))


@config.command("import")
@click.argument("file", type=click.Path(exists=True, path_type=Path))
@workspace_option
@click.pass_context
def import_(ctx: click.Context, file: Path, workspace: Path | None) -> None:
    """Take over a config.json of agent_computer, an .env, an mcp.json or a cron.json."""
    from lmagent.app.settings import import_settings

    report = import_settings(file, workspace or ctx.obj)
    for what, where in report.taken:
        click.echo(f"took {what} → {where}")
    for what, why in report.left:
        click.echo(f"left {what}: {why}")


@config.command("set")
@click.argument("name")
@click.argument("value")
@workspace_option
@click.pass_context
def set_(ctx: click.Context, name: str, value: str, workspace: Path | None) -> None:
    """Set a setting in your own configuration; a key goes to your .env, which only you can read."""
    from lmagent.app.settings import set_setting

    click.echo(set_setting(workspace or ctx.obj, name, value))


@config.command("unset")
@click.argument("name")
@workspace_option
@click.pass_context
def unset(ctx: click.Context, name: str, workspace: Path | None) -> None:
    """Take a setting out of your own configuration, so that its default holds again."""
    from lmagent.app.settings import set_setting

    click.echo(set_setting(workspace or ctx.obj, name, None))


@config.command("trust")
@click.argument("folder", required=False, type=click.Path(path_type=Path))
@workspace_option
@click.pass_context
def trust(ctx: click.Context, folder: Path | None, workspace: Path | None) -> None:
    """Trust a folder: its own configuration may loosen permissions and choose the server, and its jobs run.

    Trust ends for a file when the file changes.
    """
    from lmagent.app.settings import trust_workspace

    click.echo(trust_workspace(folder or workspace or ctx.obj))


@config.command("untrust")
@click.argument("folder", required=False, type=click.Path(path_type=Path))
@workspace_option
@click.pass_context
def untrust(ctx: click.Context, folder: Path | None, workspace: Path | None) -> None:
    """Stop trusting a folder: its own configuration may only be stricter than yours again, and its jobs wait."""
    from lmagent.app.settings import untrust_workspace

    click.echo(untrust_workspace(folder or workspace or ctx.obj))
