"""Opens the folders of the workspace for writing.

A folder is opened from the top, name by name, with symbolic links refused, so a link planted in a parent leads nowhere.
"""

from __future__ import annotations

import os
import stat as modes
import sys
from collections.abc import Callable
from typing import TypeVar

from lmagent.core.errors import WorkspaceError
from lmagent.undo.records import unescaped

T = TypeVar("T")
_STEP = getattr(os, "O_PATH", 0) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def open_workspace(workspace: str) -> int:
    """Return a descriptor of the workspace; links in its path are the user's own. Raises WorkspaceError."""
    try:
        return os.open(workspace, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise WorkspaceError(
            f"the workspace {workspace} cannot be opened: {error.strerror}",
            fix="use another folder",
            terminal="give another folder with --workspace",
        ) from error


def reach(root: int, path: str, act: Callable[[int, str], T]) -> T:
    """Call `act` with the descriptor of a path's folder and the name in it.

    `path` is escaped and relative to the open folder `root`. Raises OSError.
    """
    *folders, name = unescaped(path).split("/")
    current = os.dup(root)
    try:
        for folder in folders:
            inner = os.open(folder, _STEP, dir_fd=current)
            os.close(current)
            current = inner
        return act(current, name)
    finally:
        os.close(current)


def set_mode(folder: int, name: str, mode: int) -> None:
    """Set the permission bits of a file or folder, never those of a link's target."""
    if sys.platform != "linux":
        os.chmod(name, mode, dir_fd=folder, follow_symlinks=False)
        return
    descriptor = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        if not modes.S_ISLNK(os.fstat(descriptor).st_mode):
            # fchmod refuses such a descriptor; this path is the file, not a name
            os.chmod(f"/proc/self/fd/{descriptor}", mode)
    finally:
        os.close(descriptor)
