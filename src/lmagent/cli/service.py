"""`lmagent service …`: the gateway, started with your login and kept running."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lmagent.cli.groups import CommandGroup
from lmagent.cli.options import workspace_option

if TYPE_CHECKING:
    from lmagent.service.spec import Manager


@click.group(cls=CommandGroup)
def service() -> None:
    """Keep `lmagent web` running for a workspace, from login on.

    It is a systemd unit of your own on Linux, a launch agent on macOS, a scheduled task on Windows.
    """


@service.command()
@workspace_option
@click.option("--port", type=click.IntRange(1, 65535), default=None, help="TCP port.  [default: 7860]")
@click.option("--lan", is_flag=True, help="Let other devices in your network reach it.")
@click.option("--print", "only_print", is_flag=True, help="Show what would be installed, and change nothing.")
def install(workspace: Path | None, port: int | None, lan: bool, only_print: bool) -> int:
    """Install the service of a workspace and start it; once more after a change of its options."""
    from lmagent.service.spec import spec_for
    from lmagent.service.systemd import variables_of

    folder, data = _places(workspace)
    arguments = [*([str(port)] if port else []), *(["--lan"] if lan else [])]
    spec = spec_for(folder, arguments, data, variables_of(os.environ))
    manager = _manager()
    if only_print:
        click.echo(manager.describe(spec), nl=False)
        return 0
    for line in manager.install(spec):
        click.echo(line)
    return 0


@service.command()
@workspace_option
def remove(workspace: Path | None) -> int:
    """Stop the service of a workspace and remove it; exit code 1 if it is not installed."""
    from lmagent.service.spec import name_for

    folder, _ = _places(workspace)
    if not _manager().remove(name_for(folder)):
        click.echo(f"no service is installed for {folder}", err=True)
        return 1
    click.echo(f"removed: {name_for(folder)}")
    return 0


@service.command()
@workspace_option
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def status(workspace: Path | None, as_json: bool) -> int:
    """Say whether the service of a workspace is installed and runs; exit code 1 if it does not run."""
    import msgspec

    from lmagent.service.spec import name_for

    folder, _ = _places(workspace)
    found = _manager().status(name_for(folder))
    if as_json:
        click.echo(msgspec.json.encode(found).decode())
    elif not found.installed:
        click.echo(f"no service is installed for {folder}\n  → lmagent service install", err=True)
    else:
        click.echo(f"{found.name}: {found.words}{'' if found.enabled else ', not started at login'}")
        click.echo(f"  {found.file}\n  {found.log}")
    return 0 if found.running else 1


def _places(workspace: Path | None) -> tuple[Path, Path]:
    from lmagent.app.wiring import HostOptions, load_settings
    from lmagent.config.workspace import open_workspace

    loaded = load_settings(HostOptions(workspace))
    return open_workspace(loaded.workspace).path, loaded.settings.agent_data_dir


def _manager() -> Manager:
    if sys.platform == "win32":
        from lmagent.service.elsewhere import ScheduledTask

        return ScheduledTask(os.environ)
    if sys.platform == "darwin":
        from lmagent.service.elsewhere import Launchd

        return Launchd(os.environ, os.getuid())
    from lmagent.service.systemd import Systemd

    return Systemd(os.environ)
