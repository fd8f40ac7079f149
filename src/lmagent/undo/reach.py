"""Opens the folders of the workspace for writing.

A folder is opened from the top, name by name, with symbolic links refused, so a link planted in a parent leads nowhere.
A read-only folder of the user is made writable for that time.
"""

from __future__ import annotations

import os
import stat as modes
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from lmagent.core.errors import WorkspaceError
from lmagent.undo.records import split, unescaped

T = TypeVar("T")
_STEP = getattr(os, "O_PATH", 0) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_ALL = 0o700


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


class Reach:
    """A workspace, open for writing; `opened` are folders that were made accessible, with the mode they had."""

    def __init__(self, workspace: str) -> None:
        self.opened = dict[str, int]()
        self._root = open_workspace(workspace)
        self._path, self._descriptor = "", self._root

    def at(self, path: str, act: Callable[[int, str], T]) -> T:
        """Call `act` with the descriptor of the path's folder and the name in it.

        `act` is called again if permission was denied and the folder could be made accessible. `path` is escaped and
        relative. Raises OSError.
        """
        folder, name = split(path)
        try:
            return act(self._open(folder), unescaped(name))
        except PermissionError:
            if not self._unlock(folder):
                raise
            return act(self._open(folder), unescaped(name))

    def mode(self, path: str, found: os.stat_result) -> int:
        """Return the permission bits that a path has apart from a temporary change of ours."""
        return self.opened.get(path, modes.S_IMODE(found.st_mode))

    def close(self) -> None:
        """Restore modes, children before parents, and close the workspace."""
        for path in sorted(self.opened, key=lambda path: path.split("/"), reverse=True):
            mode = self.opened[path]
            with suppress(OSError):
                self.at(path, lambda folder, name, mode=mode: set_mode(folder, name, mode))
        self._forget()
        os.close(self._root)

    def _open(self, folder: str) -> int:
        """Return the descriptor of a folder, which is valid until the next call."""
        if folder == self._path:
            return self._descriptor
        current = self._root
        try:
            for name in unescaped(folder).split("/") if folder else ():
                inner = os.open(name, _STEP, dir_fd=current)
                if current != self._root:
                    os.close(current)
                current = inner
        except OSError:
            if current != self._root:
                os.close(current)
            raise
        self._forget()
        self._path, self._descriptor = folder, current
        return current

    def _forget(self) -> None:
        if self._descriptor != self._root:
            os.close(self._descriptor)
        self._path, self._descriptor = "", self._root

    def _unlock(self, folder: str) -> bool:
        """Make a folder and its parents accessible to us; return whether that changed anything."""
        changed = False
        parts = folder.split("/") if folder else []
        for depth in range(1, len(parts) + 1):
            path = "/".join(parts[:depth])
            above, name = split(path)
            try:
                descriptor = self._open(above)
                found = os.stat(unescaped(name), dir_fd=descriptor, follow_symlinks=False)
                mode = modes.S_IMODE(found.st_mode)
                if not modes.S_ISDIR(found.st_mode) or mode & _ALL == _ALL:
                    continue
                set_mode(descriptor, unescaped(name), mode | _ALL)
            except OSError:
                return changed
            self.opened.setdefault(path, mode)
            changed = True
        return changed


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
