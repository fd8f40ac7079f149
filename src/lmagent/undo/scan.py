"""Walks the workspace, or some paths of it, and keeps the contents.

Folders are opened one by one from the descriptor of the folder they are in, symbolic links refused, so no link that is
swapped in leads the walk outside. A path whose signature is that of its record is not opened. A path that vanishes or
changes its kind during the walk is no error.
"""

from __future__ import annotations

import errno
import os
import stat as modes
from collections.abc import Callable, Collection

from lmagent.core.changes import UndoRefusal
from lmagent.undo.keep import Keeper
from lmagent.undo.limits import UndoLimits, is_bulky
from lmagent.undo.reach import open_workspace
from lmagent.undo.records import (
    LINKED,
    WIDTH,
    Record,
    Tree,
    bare,
    escaped,
    is_kept,
    join,
    signature,
    split,
    unescaped,
)
from lmagent.undo.states import State

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


class Scan:
    """One walk; `refusals` are files whose content was not kept, and folders that could not be looked into.

    Raises WorkspaceError.

    Args:
        known: records of an earlier walk.
        hidden: paths that are passed over, with everything below them.
        breathe: called at every folder; raises to give up.
    """

    def __init__(
        self,
        workspace: str,
        keeper: Keeper,
        known: Tree,
        limits: UndoLimits,
        hidden: Collection[str] = (),
        breathe: Callable[[], None] = lambda: None,
    ) -> None:
        self._keeper = keeper
        self._known = known
        self._limits = limits
        self._hidden = dict[str, set[str]]()
        for path in hidden:
            parent, name = split(path)
            self._hidden.setdefault(parent, set()).add(unescaped(name))
        self._breathe = breathe
        self._left = limits.entries_max
        self._tree: Tree = {}
        self._blind_folders = dict[str, str]()
        self.refusals = list[UndoRefusal]()
        self._root = open_workspace(workspace)
        self._device = os.fstat(self._root).st_dev

    def run(self, paths: tuple[str, ...] | None) -> State:
        """Look at everything, or at some paths, everything below them, and the folders above them.

        The paths are escaped and relative; no link in them is followed.
        """
        try:
            if paths is None:
                self._walk(self._root, "", 0, bulky=False)
            for path in paths or ():
                self._descend(path.split("/"))
        finally:
            os.close(self._root)
        return State(self._tree, paths, self._blind_folders)

    def _descend(self, parts: list[str]) -> None:
        current, folder, bulky = os.dup(self._root), "", False
        try:
            for depth, key in enumerate(parts, 1):
                name, path = unescaped(key), join(folder, key)
                if name in self._hidden.get(folder, ()):
                    return
                seen = os.stat(name, dir_fd=current, follow_symlinks=False)
                if not modes.S_ISDIR(seen.st_mode):
                    if depth == len(parts):
                        record = self._record(current, folder, name, seen, bulky=False)
                        self._tree.setdefault(folder, {}).update({key: record} if record is not None else {})
                    return
                bulky = bulky or is_bulky(folder, key)
                self._tree.setdefault(folder, {})[key] = bare(seen)
                inner = os.open(name, FOLDER, dir_fd=current)
                os.close(current)
                current, folder = inner, path
            self._walk(current, folder, len(parts), bulky=bulky)
        except OSError as error:
            if error.errno not in _GONE:
                self._refuse("/".join(parts), error)
        finally:
            os.close(current)

    def _walk(self, descriptor: int, path: str, depth: int, *, bulky: bool) -> None:
        """Record a folder, which the caller closes, and everything below it."""
        self._breathe()
        new = dict[str, Record]()
        for name, key, device in self._list(descriptor, path, new, bulky=bulky):
            inner = join(path, key)
            if depth >= self._limits.depth_max:
                self._blind(inner, f"more than {self._limits.depth_max} folders deep: it was not looked at")
            elif device != self._device:
                self._blind(inner, "another file system is mounted there: it was not looked at")
            elif not self._enter(descriptor, name, inner, depth + 1, bulky=bulky or is_bulky(path, key)):
                del new[key]
        old = self._known.get(path, {})
        if new:
            self._tree[path] = old if new == old else new

    def _list(self, descriptor: int, path: str, new: dict[str, Record], *, bulky: bool) -> list[tuple[str, str, int]]:
        """Record the contents of a folder in `new`; return the folders in it as (name, key, device)."""
        inner = list[tuple[str, str, int]]()
        hidden = self._hidden.get(path, ())
        try:
            with os.scandir(descriptor) as entries:
                for entry in entries:
                    if entry.name in hidden:
                        continue
                    if self._left <= 0:
                        self._blind(path, f"more than {self._limits.entries_max} paths: it was not looked at")
                        break
                    self._left -= 1
                    try:
                        seen = entry.stat(follow_symlinks=False)
                    except FileNotFoundError:
                        continue
                    key = escaped(entry.name)
                    if modes.S_ISDIR(seen.st_mode):
                        new[key] = bare(seen)
                        inner.append((entry.name, key, seen.st_dev))
                    elif (record := self._record(descriptor, path, entry.name, seen, bulky=bulky)) is not None:
                        new[key] = record
        except OSError as error:
            self._refuse(path, error)
        return inner

    def _record(self, descriptor: int, folder: str, name: str, seen: os.stat_result, *, bulky: bool) -> Record | None:
        """Return the record of a path that is no folder, and keep its content; None if it is gone."""
        known = self._known.get(folder, {}).get(escaped(name))
        lasting = known is not None and is_kept(known) and (bulky or known[WIDTH:] != LINKED)
        if known is not None and lasting and known[:WIDTH] == signature(seen):
            return known
        record, reason = self._keeper.keep(descriptor, name, seen, bulky=bulky)
        if reason:
            self.refusals.append(UndoRefusal(join(folder, escaped(name)), reason))
        return record

    def _enter(self, parent: int, name: str, path: str, depth: int, *, bulky: bool) -> bool:
        """Walk a folder; return False if it is gone."""
        try:
            descriptor = os.open(name, FOLDER, dir_fd=parent)
        except OSError as error:
            if error.errno in _GONE:
                return False
            self._refuse(path, error)
            return True
        try:
            self._walk(descriptor, path, depth, bulky=bulky)
        finally:
            os.close(descriptor)
        return True

    def _refuse(self, path: str, error: OSError) -> None:
        self._blind(path, f"the folder cannot be read: {error.strerror}")

    def _blind(self, path: str, reason: str) -> None:
        self._blind_folders[path] = reason
        self.refusals.append(UndoRefusal(path or ".", reason))
