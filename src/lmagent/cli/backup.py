"""`lmagent backup` and `lmagent restore`: sessions, memories and settings in one file, and back."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lmagent.cli import shared
from lmagent.config.workspace import open_workspace
from lmagent.core.errors import SessionBusy, StoreError
from lmagent.core.plurals import plural
from lmagent.tools.sanitize import visible

if TYPE_CHECKING:
    from lmagent.backup.archive import Archive
    from lmagent.backup.content import Part

_ONLY: dict[str, tuple[Part, ...]] = {
    "": ("workspace", "data", "config"),
    "workspace": ("workspace",),
    "user": ("data", "config"),
}
_SHOWN = 10  # files that an error names

only_option = click.option(
    "--only", type=click.Choice(["workspace", "user"]), help="The workspace's part, or the user's."
)


@click.command()
@click.argument("file", required=False, type=click.Path(path_type=Path, dir_okay=False))
@only_option
@shared.workspace_option
def backup(file: Path | None, only: str | None, workspace: Path | None) -> None:
    """Write sessions, memories and settings to one FILE, without keys.

    Taken are the workspace's .lmagent, and of your own data memories, settings and commands. Left out are keys, logins,
    models, and the copies of files that undo needs.
    """
    from lmagent.backup.archive import write_archive
    from lmagent.backup.content import sources

    folder, places = _places(workspace, only)
    target = file or Path(f"lmagent-{folder.name or 'root'}-{time.strftime('%Y-%m-%d-%H%M%S')}.tar.gz")
    written = write_archive(target.absolute(), sources(places), time.time())
    for line in written.left:
        click.echo(f"left out: {visible(line)}", err=True)
    click.echo(f"{target}: {plural(written.files, 'file')}, {written.bytes / 1e6:.1f} MB before compression")


@click.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@only_option
@click.option("--replace", is_flag=True, help="Replace files that differ; those here are kept in `replaced`.")
@click.option("--list", "only_list", is_flag=True, help="Show what the backup holds, and how it is here.")
@shared.workspace_option
def restore(file: Path, only: str | None, replace: bool, only_list: bool, workspace: Path | None) -> None:
    """Bring back what `lmagent backup` wrote. Nothing is lost: files that differ are kept, or nothing is restored.

    The settings come without keys: type those again. MCP servers, hooks and folders have to be trusted again.
    """
    from lmagent.backup.archive import Archive

    _, places = _places(workspace, only)
    archive = Archive(file)
    states = archive.states(places)
    if only_list:
        for entry, state in states.items():
            click.echo(f"{state:<9} {entry}")
        return
    different = [entry for entry, state in states.items() if state == "different"]
    missing = [entry for entry, state in states.items() if state == "missing"]
    if different and not replace:
        some = ", ".join(different[:_SHOWN])
        text = f"{plural(len(different), 'file')} differ here, and nothing was restored: {some}"
        raise StoreError(
            text, fix="--replace keeps those that are here in the folder `replaced`, and restores the others"
        )
    _restore(archive, different, missing, places)
    changed = len(missing) + len(different)
    click.echo(f"{plural(changed, 'file')} restored, {len(states) - changed} were the same")


def _restore(archive: Archive, different: list[str], missing: list[str], places: dict[Part, Path]) -> None:
    from lmagent.backup.archive import target_of
    from lmagent.backup.content import REPLACED

    targets = {entry: target_of(entry, places) for entry in different}
    with ExitStack() as held:
        for folder in {target.parent for target in targets.values()}:
            _hold(held, folder)
        at = time.strftime("%Y-%m-%d-%H%M%S")
        for target in targets.values():
            root = next(root for root in places.values() if target.is_relative_to(root))
            kept = root / REPLACED / at / target.relative_to(root)  # in the root: no tool of the agent reads there
            kept.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            os.replace(target, kept)
            click.echo(f"kept: {kept}")
        archive.restore({*different, *missing}.__contains__, places)


def _hold(held: ExitStack, folder: Path) -> None:
    """Hold the lock of a session's folder, so that no lmagent opens the session meanwhile."""
    from lmagent.store.lock import hold

    if (folder / "lock").exists():
        try:
            held.callback(hold(folder / "lock", folder.name).release)
        except SessionBusy:
            fix = "end that lmagent, then try again"
            raise SessionBusy(f"{folder} is in use; nothing was restored", fix=fix) from None


def _places(workspace: Path | None, only: str | None) -> tuple[Path, dict[Part, Path]]:
    from lmagent.backup.content import roots

    loaded = shared.loaded_settings(workspace)
    folder = open_workspace(loaded.workspace).path
    every = roots(folder, loaded.settings.agent_data_dir, os.environ)
    return folder, {part: every[part] for part in _ONLY[only or ""]}
