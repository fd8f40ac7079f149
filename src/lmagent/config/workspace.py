"""Workspace: choose and check the folder that the agent works in.

    --workspace > WORKSPACE (and `workspace` in the user's config) > the current folder

If lmagent is started in the home folder or in `/`, the workspace is `~/lm_workspace`. The home folder itself and `/`
are accepted only from the flag.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from msgspec import Struct

from lmagent.config.paths import config_dir, data_dir, expand_path
from lmagent.core.errors import WorkspaceError

FALLBACK = "lm_workspace"


class WorkspaceChoice(Struct, frozen=True):
    """A workspace that is not checked yet; paths are absolute, with links resolved. `named` is its source."""

    path: Path
    by: Literal["flag", "setting", "cwd", "fallback"]
    named: str
    home: Path


class Workspace(Struct, frozen=True):
    """An absolute path with links resolved, after the checks; `note` is a line for the user, or empty."""

    path: Path
    note: str = ""


def choose_workspace(
    flag: Path | str | None, setting: Path | str | None, cwd: Path, home: Path, named: str = "WORKSPACE"
) -> WorkspaceChoice:
    """Choose the workspace; nothing is made or checked. `named` says in messages where `setting` comes from."""
    home = Path(os.path.realpath(home))
    if flag:
        return WorkspaceChoice(_resolve(flag, cwd, home), "flag", "--workspace", home)
    if setting:
        return WorkspaceChoice(_resolve(setting, cwd, home), "setting", named, home)
    here = Path(os.path.realpath(cwd))
    if here == home or here == Path(here.anchor):
        return WorkspaceChoice(home / FALLBACK, "fallback", "the home folder" if here == home else str(here), home)
    return WorkspaceChoice(here, "cwd", "the current folder", home)


def open_workspace(choice: WorkspaceChoice) -> Workspace:
    """Check the folder, and make it if it is the fallback.

    Raises WorkspaceError if it is missing, no folder, not writable, or too large a scope (the home folder, `/`).
    """
    path = choice.path
    if choice.by == "setting" and path in (choice.home, Path(path.anchor)):
        what = "your home folder" if path == choice.home else "the root folder"
        raise WorkspaceError(
            f"{choice.named} names {what} as the workspace, and the agent could change everything in it",
            fix=f"name a folder inside it, or say so for one run: lmagent --workspace {path}",
        )
    for place in (config_dir(os.environ), data_dir(os.environ)):
        if path == Path(os.path.realpath(place)):
            fix = "name another folder: lmagent --workspace DIR"
            raise WorkspaceError(f"{choice.named} names lmagent's own folder {path} as the workspace", fix=fix)
    if choice.by != "fallback":
        _check(path, choice.named)
        return Workspace(path)
    try:
        path.mkdir(exist_ok=True)
    except OSError as error:
        fix = "name another folder with --workspace"
        raise WorkspaceError(f"the workspace {path} cannot be made: {error.strerror}", fix=fix) from error
    _check(path, choice.named)
    return Workspace(
        path, f"Started in {choice.named}: the workspace is {path}. Choose another folder with --workspace."
    )


def _resolve(named: Path | str, cwd: Path, home: Path) -> Path:
    return Path(os.path.realpath(expand_path(str(named), cwd, home)))


def _check(path: Path, named: str) -> None:
    what, another = f"the workspace {path} ({named})", "choose another folder: lmagent -w FOLDER"
    if not os.path.isdir(path):
        fix = f"make it: mkdir -p {path}, or {another}"
        raise WorkspaceError(f"{what} does not exist, or is no folder that can be reached", fix=fix)
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
        raise WorkspaceError(f"{what} is not writable for you", fix=f"see whose it is: ls -ld {path}, or {another}")
