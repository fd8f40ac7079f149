"""`lmagent service …`: the gateway, started with your login and kept running."""

from __future__ import annotations

import os
from pathlib import Path

import click

from lmagent.cli.shared import CommandGroup, json_option, show, workspace_folder, workspace_option
from lmagent.service.systemd import Service


@click.group(cls=CommandGroup)
def service() -> None:
    """Keep `lmagent web` running for a workspace, from login on. It is a systemd unit of your own."""


@service.command()
@workspace_option
@click.option("--port", type=click.IntRange(1, 65535), default=None, help="TCP port.  [default: 7860]")
@click.option("--lan", is_flag=True, help="Let other devices in your network reach it.")
@click.option("--print", "only_print", is_flag=True, help="Show what would be installed, and change nothing.")
def install(workspace: Path | None, port: int | None, lan: bool, only_print: bool) -> None:
    """Install the service of a workspace and start it; once more after a change of its options."""
    meant = _service(workspace)
    arguments = [*([str(port)] if port else []), *(["--lan"] if lan else [])]
    if only_print:
        click.echo(meant.unit(arguments), nl=False)
        return
    meant.install(arguments)
    click.echo(f"installed and started: {meant.file}")
    click.echo(f"output, with the PIN: {meant.log}")
    click.echo("it runs while you are logged in; for longer: loginctl enable-linger")


@service.command()
@workspace_option
def remove(workspace: Path | None) -> int:
    """Stop the service of a workspace and remove it; exit code 1 if it is not installed."""
    meant = _service(workspace)
    if not meant.remove():
        click.echo(f"no service is installed here: {meant.name}", err=True)
        return 1
    click.echo(f"removed: {meant.name}")
    return 0


@service.command()
@workspace_option
@json_option
def status(workspace: Path | None, as_json: bool) -> int:
    """Say whether the service of a workspace is installed and runs; exit code 1 if it does not run."""
    found = _service(workspace).status()
    login = "" if found.enabled else ", not started at login"
    line = f"{found.name}: {found.words}{login}\n  {found.file}\n  {found.log}"
    if not found.installed:
        line = f"no service is installed here: {found.name}\n  → lmagent service install"
    show(as_json, [found], [line])
    return 0 if found.running else 1


def _service(workspace: Path | None) -> Service:
    return Service(workspace_folder(workspace), os.environ)
