"""Shim: `lms` on the PATH for those who are used to it, and `lmagent lms-shim`, which puts it there."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

import click

from lmagent.cli import shared
from lmagent.cli.lms.verbs import NoEquivalent, table, translate
from lmagent.core.errors import ConfigError
from lmagent.store.files import replace_whole, store_error
from lmagent.tools.sanitize import visible

NAME = "lms"
MARK = "# lms of lmagent: `lmagent lms-shim remove` removes it.\n"
"""The second line of the file, by which it is known."""

NO_EQUIVALENT = 2
"""Exit code of `lms` for a verb or flag that lmagent has nothing for."""


@click.group(name="lms-shim", cls=shared.CommandGroup)
def lms_shim() -> None:
    """Put a small `lms` on the PATH, for people and scripts that know LM Studio's.

    It runs lmagent's commands for the model server and for agent projects, and says which one is nearest where a verb
    or a flag has no equivalent.
    """


folder_option = click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Folder of the file.  [default: ~/.local/bin]",
)


@lms_shim.command()
@folder_option
@click.option("--force", is_flag=True, help="Replace an lms that is not ours.")
def install(folder: Path | None, force: bool) -> None:
    """Write `lms` into a folder."""
    path = _path(folder)
    if (path.exists() or path.is_symlink()) and not force and not _is_ours(path):
        fix = "choose another folder with --dir, or replace it with --force"
        raise ConfigError(f"{visible(str(path))} is there already, and is not lmagent's", fix=fix)
    # -P: nothing is imported from the folder in which the user types.
    content = f'#!/bin/sh\n{MARK}exec {shlex.quote(sys.executable)} -P -m lmagent lms-shim run "$@"\n'
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f".{NAME}.{os.getpid()}.new")
        replace_whole(path, beside, content.encode("utf-8", "surrogateescape"))
        path.chmod(0o755)
    except OSError as error:
        raise store_error(error, "lms could not be written", path) from error
    shared.echo(f"installed: {path}")
    found = shutil.which(NAME)
    if not any(os.path.abspath(one) == str(path.parent) for one in os.get_exec_path()):
        shared.say(f"{path.parent} is not in PATH; for this shell: export PATH={shlex.quote(str(path.parent))}:$PATH")
    elif found is not None and not os.path.samefile(found, path):
        shared.say(f"{found} comes first in PATH: it is what `lms` runs")


@lms_shim.command()
@folder_option
def remove(folder: Path | None) -> int:
    """Remove `lms` from a folder; exit code 1 if it is not there."""
    path = _path(folder)
    if not (path.exists() or path.is_symlink()):
        shared.say(f"there is no {path}")
        return 1
    if not _is_ours(path):
        raise ConfigError(f"{visible(str(path))} is not lmagent's", fix="remove it by hand, if you want to")
    path.unlink()
    shared.echo(f"removed: {path}")
    return 0


@lms_shim.command(hidden=True, add_help_option=False, context_settings={"ignore_unknown_options": True})
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
def run(words: tuple[str, ...]) -> int:
    """Do what `lms` with these words would."""
    from lmagent.cli.main import rewrite
    from lmagent.cli.root import call

    if not words or words[0] in ("help", "-h", "--help"):
        shared.show_table(("VERB", "RUNS"), table())
        return 0
    try:
        arguments = translate(words)
    except NoEquivalent as answer:
        shared.say(f"{answer}\n  → {answer.instead}")
        return NO_EQUIVALENT
    return call(rewrite(arguments))


def _path(folder: Path | None) -> Path:
    return Path(os.path.abspath(folder or Path.home() / ".local" / "bin")) / NAME


def _is_ours(path: Path) -> bool:
    try:
        with open(path, "rb") as file:
            return MARK.encode() in file.read(1000)
    except OSError:
        return False
