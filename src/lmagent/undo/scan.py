"""Walks the workspace, or some paths of it, and keeps the contents.

Folders are opened one by one from the descriptor of the folder they are in, symbolic links refused, so no link that is
swapped in leads the walk outside. A path whose signature is that of its record is not opened. A path that vanishes or
changes its kind during the walk is no error.
"""

from __future__ import annotations

import errno
import os
import stat as modes
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress

from msgspec import Struct, field

from lmagent.core.changes import UndoRefusal
from lmagent.core.errors import WorkspaceError
from lmagent.undo.keep import Keeper
from lmagent.undo.limits import Bulk, UndoLimits, bulk_of
from lmagent.undo.names import escaped, join, split, unescaped
from lmagent.undo.reach import set_mode
from lmagent.undo.records import WIDTH, Record, Tree, bare, is_kept, is_link, signature

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


class Taken(Struct):
    """A state of the workspace, or of some paths of it.

    Attributes:
        blind: folders that could not be looked into, and why: nothing below them is known.
        refusals: files whose content was not kept, and the blind folders.
    """

    tree: Tree = field(default_factory=dict[str, dict[str, Record]])
    blind: dict[str, str] = field(default_factory=dict[str, str])
    refusals: list[UndoRefusal] = field(default_factory=list[UndoRefusal])


class Scan:
    """One walk.

    Args:
        workspace: its path; links in it are the user's own and are followed.
        known: records of an earlier walk.
        hidden: paths that are passed over, with everything below them.
        shut: folders that stay closed, since a call may have closed them; other folders that the user may not look into
            are made accessible for the walk. With None, no folder is.
        breathe: called at every folder; raises to give up.

    Raises:
        WorkspaceError: the workspace cannot be opened.
    """

    def __init__(
        self,
        workspace: str,
        keeper: Keeper,
        known: Tree,
        limits: UndoLimits,
        hidden: Collection[str] = (),
        shut: Collection[str] | None = None,
        breathe: Callable[[], None] = lambda: None,
    ) -> None:
        self._keeper = keeper
        self._known = known
        self._limits = limits
        self._hidden = dict[str, set[str]]()
        for path in hidden:
            parent, name = split(path)
            self._hidden.setdefault(parent, set()).add(unescaped(name))
        self._shut = shut
        self._breathe = breathe
        self._left = limits.entries_max
        self._taken = Taken()
        try:
            self._root = os.open(workspace, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise WorkspaceError(
                f"the workspace {workspace} cannot be opened: {error.strerror}",
                fix="use another folder",
                terminal="give another folder with --workspace",
            ) from error
        self._device = os.fstat(self._root).st_dev

    def everything(self) -> Taken:
        try:
            self._walk(self._root, "", 0, "")
        finally:
            os.close(self._root)
        return self._taken

    def some(self, paths: Sequence[str]) -> Taken:
        """Look at some paths, everything below them, and the folders above them.

        The paths are escaped and relative; no link in them is followed.
        """
        try:
            for path in paths:
                self._descend(path.split("/"))
        finally:
            os.close(self._root)
        return self._taken

    def _descend(self, parts: list[str]) -> None:
        bulk: Bulk
        current, folder, bulk = os.dup(self._root), "", ""
        try:
            for depth, key in enumerate(parts, 1):
                name, path = unescaped(key), join(folder, key)
                if name in self._hidden.get(folder, ()):
                    return
                seen = os.stat(name, dir_fd=current, follow_symlinks=False)
                bulk = bulk_of(folder, key, bulk)
                if not modes.S_ISDIR(seen.st_mode):
                    if depth == len(parts):
                        known = self._known.get(folder, {}).get(key)
                        self._put(folder, key, self._one(current, folder, name, seen, known, ""))
                    return
                self._put(folder, key, bare(seen))
                inner = os.open(name, FOLDER, dir_fd=current)
                os.close(current)
                current, folder = inner, path
            self._walk(current, folder, len(parts), bulk)
        except OSError as error:
            if error.errno not in _GONE:
                self._refuse("/".join(parts), error)
        finally:
            os.close(current)

    def _put(self, folder: str, key: str, record: Record | None) -> None:
        if record is not None:
            self._taken.tree.setdefault(folder, {})[key] = record

    def _walk(self, descriptor: int, path: str, depth: int, bulk: Bulk) -> None:
        """The caller closes the descriptor."""
        self._breathe()
        new = dict[str, Record]()
        for name, key, device in self._list(descriptor, path, new, bulk):
            inner = join(path, key)
            if depth >= self._limits.depth_max:
                self._blind(inner, f"more than {self._limits.depth_max} folders deep: it was not looked at")
            elif device != self._device:
                self._blind(inner, "another file system is mounted there: it was not looked at")
            elif not self._enter(descriptor, name, inner, depth + 1, bulk_of(path, key, bulk)):
                del new[key]
        old = self._known.get(path, {})
        if new:
            self._taken.tree[path] = old if new == old else new

    def _list(self, descriptor: int, path: str, new: dict[str, Record], bulk: Bulk) -> list[tuple[str, str, int]]:
        """Record the contents of a folder in `new`; return the folders in it as (name, key, device)."""
        old = self._known.get(path, {})
        inner = list[tuple[str, str, int]]()
        hidden = self._hidden.get(path, ())
        try:
            with os.scandir(descriptor) as entries:
                for entry in entries:
                    name = entry.name
                    if name in hidden:
                        continue
                    if self._left <= 0:
                        self._blind(path, f"more than {self._limits.entries_max} paths: it was not looked at")
                        break
                    self._left -= 1
                    try:
                        seen = entry.stat(follow_symlinks=False)
                    except FileNotFoundError:
                        continue
                    key = name if name.isascii() and "\\" not in name else escaped(name)
                    if modes.S_ISDIR(seen.st_mode):
                        new[key] = bare(seen)
                        inner.append((name, key, seen.st_dev))
                        continue
                    record = old.get(key)
                    if record is None or record[:WIDTH] != signature(seen) or not is_kept(record):
                        record = self._one(descriptor, path, name, seen, record, bulk)
                    if record is not None:
                        new[key] = record
        except OSError as error:
            self._refuse(path, error)
        return inner

    def _enter(self, parent: int, name: str, path: str, depth: int, bulk: Bulk) -> bool:
        """Walk a folder, made readable for that time if necessary; return False if it is gone."""
        try:
            descriptor, mode = self._open(parent, name, path)
        except OSError as error:
            if error.errno in _GONE:
                return False
            self._refuse(path, error)
            return True
        try:
            self._walk(descriptor, path, depth, bulk)
        finally:
            os.close(descriptor)
            if mode is not None:
                with suppress(OSError):
                    set_mode(parent, name, mode)
        return True

    def _open(self, parent: int, name: str, path: str) -> tuple[int, int | None]:
        """Return the descriptor of a folder, and its mode if that was changed to open it."""
        try:
            return os.open(name, FOLDER, dir_fd=parent), None
        except PermissionError:
            if self._shut is None or path in self._shut:
                raise
        mode = modes.S_IMODE(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
        set_mode(parent, name, mode | 0o500)
        try:
            return os.open(name, FOLDER, dir_fd=parent), mode
        except OSError:
            with suppress(OSError):
                set_mode(parent, name, mode)
            raise

    def _one(
        self, descriptor: int, folder: str, name: str, seen: os.stat_result, known: Record | None, bulk: Bulk
    ) -> Record | None:
        if known is not None and known[:WIDTH] == signature(seen) and not is_link(known[WIDTH:]) and is_kept(known):
            return known
        record, reason = self._keeper.keep(descriptor, name, seen, known, bulk)
        if reason:
            self._taken.refusals.append(UndoRefusal(join(folder, escaped(name)), reason))
        return record

    def _refuse(self, path: str, error: OSError) -> None:
        self._blind(path, f"the folder cannot be read: {error.strerror}")

    def _blind(self, path: str, reason: str) -> None:
        self._taken.blind[path] = reason
        self._taken.refusals.append(UndoRefusal(path or ".", reason))
