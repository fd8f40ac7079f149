"""The folder of a command, and the paths of the programs that make its sandbox."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from lmagent.core.errors import SandboxError


def inside(workspace: Path, cwd: str) -> Path:
    """Return the folder of a command.

    Raises:
        SandboxError: the folder is outside the workspace, or does not exist.
    """
    folder = Path(os.path.normpath(workspace / cwd))
    try:
        real = Path(os.path.realpath(folder))
    except OSError as error:  # another command moves the folder during the look
        raise SandboxError(f"the folder {cwd!r} cannot be looked at: {error.strerror}; nothing was run") from None
    if not folder.is_relative_to(workspace) or not real.is_relative_to(workspace):
        raise SandboxError(f"the folder {cwd!r} is outside the workspace; nothing was run")
    if not folder.is_dir():
        raise SandboxError(f"the folder {cwd!r} does not exist; nothing was run")
    return folder


def find_program(name: str, env: Mapping[str, str], workspace: Path) -> str | None:
    """Return the path of a program on PATH, never one in the workspace, where the agent could have put it."""
    for entry in env.get("PATH", os.defpath).split(os.pathsep):
        path = Path(entry, name)
        if not path.is_absolute() or path.is_relative_to(workspace) or path.resolve().is_relative_to(workspace):
            continue
        if os.access(path, os.X_OK) and path.is_file():
            return str(path)
    return None
