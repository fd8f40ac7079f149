"""Scan: what is in the workspace, or at some paths of it, with the contents kept.

Folders are opened one by one from the descriptor of the folder they are in, symbolic links refused, so no link that is
swapped in leads the walk outside; of a deep chain of them, only the lowest stay open. A path whose signature is that of
its record is not opened. Nothing that vanishes or changes its kind while the walk goes on is an error.
"""

from __future__ import annotations

import errno
import os
import stat as modes
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress

from msgspec import Struct, field

from lmagent.core.changes import Refusal
from lmagent.core.errors import WorkspaceError
from lmagent.undo.keep import Keeper
from lmagent.undo.limits import Bulk, Limits, bulk_of
from lmagent.undo.names import escaped, join, split, unescaped
from lmagent.undo.reach import set_mode
from lmagent.undo.records import WIDTH, Record, Tree, bare, is_kept, is_link, signature

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
_OPEN = 64
"""Folders below each other that are open at once; a process may have 256 descriptors on some systems."""


class Taken(Struct):
    """A state of the workspace, or of some paths of it.

    Attributes:
        tree: the records.
        blind: folders that could not be looked into, and why: nothing is known of what is below.
        refusals: files whose content was not kept, and the blind folders.
    """

    tree: Tree = field(default_factory=dict[str, dict[str, Record]])
    blind: dict[str, str] = field(default_factory=dict[str, str])
    refusals: list[Refusal] = field(default_factory=list[Refusal])


class _Level(Struct):
    """A folder that the walk is in.

    Attributes:
        descriptor: of the folder; -1 while it is closed.
        names: its name in the folder it is in, and the same escaped.
        path: escaped.
        depth: below the top of the walk.
        bulk: how its files are treated.
        new: the records so far.
        inner: folders in it that are still to be walked, as (name, key, device).
        mode: what it had before it was opened up.
        identity: device and inode, to know it by when it was closed.
    """

    descriptor: int
    names: tuple[str, str]
    path: str
    depth: int
    bulk: Bulk
    new: dict[str, Record] = field(default_factory=dict[str, Record])
    inner: list[tuple[str, str, int]] = field(default_factory=list[tuple[str, str, int]])
    mode: int | None = None
    identity: tuple[int, int] = (0, 0)


class Scan:
    """One walk.

    Args:
        workspace: its path; links in it are the user's own and are followed.
        keeper: keeps contents.
        known: records of an earlier walk.
        limits: how far to go.
        hidden: paths that are passed over, with all that is below them.
        shut: a folder that the user may not look into is opened up for the look, unless it is one of these: a call may
            have closed it behind itself. None opens none.
        breathe: called at every folder; may raise, to give up.

    Raises:
        WorkspaceError: the workspace cannot be opened.
    """

    def __init__(
        self,
        workspace: str,
        keeper: Keeper,
        known: Tree,
        limits: Limits,
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
        """The whole workspace."""
        try:
            self._walk(_Level(self._root, ("", ""), "", 0, ""))
        finally:
            os.close(self._root)
        return self._taken

    def some(self, paths: Sequence[str]) -> Taken:
        """Some paths, what is below them, and the folders above them.

        Args:
            paths: escaped and relative; no link in them is followed.
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
            self._walk(_Level(current, ("", ""), folder, len(parts), bulk))
        except OSError as error:
            if error.errno not in _GONE:
                self._refuse("/".join(parts), error)
        finally:
            os.close(current)

    def _put(self, folder: str, key: str, record: Record | None) -> None:
        if record is not None:
            self._taken.tree.setdefault(folder, {})[key] = record

    def _walk(self, top: _Level) -> None:
        """All that is in a folder and below it. The caller closes its descriptor."""
        levels = [top]
        try:
            self._begin(top)
            while levels:
                level = levels[-1]
                if not level.inner:
                    self._end(levels)
                elif (inner := self._enter(level, *level.inner.pop())) is not None:
                    levels.append(inner)
                    self._spare(levels)
                    self._begin(inner)
        finally:
            while len(levels) > 1:  # it is given up: what was opened up is closed again
                self._leave(levels)

    def _begin(self, level: _Level) -> None:
        self._breathe()
        level.inner = self._list(level)[::-1]

    def _end(self, levels: list[_Level]) -> None:
        """Take over what was found in the folder, and go back to the one it is in."""
        level = levels[-1]
        old = self._known.get(level.path, {})
        if level.new:
            self._taken.tree[level.path] = old if level.new == old else level.new
        self._leave(levels)

    def _leave(self, levels: list[_Level]) -> None:
        level = levels.pop()
        if not levels:
            return
        outer = levels[-1]
        if outer.descriptor < 0 and not self._reopen(outer, level):
            self._blind(outer.path, "it was moved while it was looked at")
            outer.inner.clear()
        if level.mode is not None and outer.descriptor >= 0:
            with suppress(OSError):
                set_mode(outer.descriptor, level.names[0], level.mode)
        if level.descriptor >= 0:
            os.close(level.descriptor)

    def _reopen(self, outer: _Level, level: _Level) -> bool:
        """Open a folder again from one that is in it; False if that is another one by now."""
        if level.descriptor < 0:
            return False
        try:
            descriptor = os.open("..", FOLDER, dir_fd=level.descriptor)
        except OSError:
            return False
        if _identity(descriptor) != outer.identity:
            os.close(descriptor)
            return False
        outer.descriptor = descriptor
        return True

    def _spare(self, levels: list[_Level]) -> None:
        """Close the lowest folder but so many, never the top."""
        if len(levels) <= _OPEN + 1:
            return
        level = levels[-_OPEN - 1]
        if level.descriptor < 0:
            return
        level.identity = _identity(level.descriptor)
        os.close(level.descriptor)
        level.descriptor = -1

    def _list(self, level: _Level) -> list[tuple[str, str, int]]:
        """Record what is in a folder; the folders in it as (name, key, device)."""
        descriptor, path, new, bulk = level.descriptor, level.path, level.new, level.bulk
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

    def _enter(self, outer: _Level, name: str, key: str, device: int) -> _Level | None:
        """Open a folder; None if it is gone, or cannot be looked into."""
        path = join(outer.path, key)
        if outer.depth >= self._limits.depth_max:
            self._blind(path, f"more than {self._limits.depth_max} folders deep: it was not looked at")
        elif device != self._device:
            self._blind(path, "another file system is mounted there: it was not looked at")
        else:
            inner = _Level(-1, (name, key), path, outer.depth + 1, bulk_of(outer.path, key, outer.bulk))
            try:
                self._open(outer.descriptor, inner)
            except OSError as error:
                if error.errno not in _GONE:
                    self._refuse(path, error)
                else:
                    del outer.new[key]
            else:
                return inner
        return None

    def _open(self, parent: int, level: _Level) -> None:
        name = level.names[0]
        try:
            level.descriptor = os.open(name, FOLDER, dir_fd=parent)
            return
        except PermissionError:
            if self._shut is None or level.path in self._shut:
                raise
        mode = modes.S_IMODE(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
        set_mode(parent, name, mode | 0o500)
        try:
            level.descriptor = os.open(name, FOLDER, dir_fd=parent)
        except OSError:
            with suppress(OSError):
                set_mode(parent, name, mode)
            raise
        level.mode = mode

    def _one(
        self, descriptor: int, folder: str, name: str, seen: os.stat_result, known: Record | None, bulk: Bulk
    ) -> Record | None:
        if known is not None and known[:WIDTH] == signature(seen) and not is_link(known[WIDTH:]) and is_kept(known):
            return known
        record, reason = self._keeper.keep(descriptor, name, seen, known, bulk)
        if reason:
            self._taken.refusals.append(Refusal(join(folder, escaped(name)), reason))
        return record

    def _refuse(self, path: str, error: OSError) -> None:
        self._blind(path, f"the folder cannot be read: {error.strerror}")

    def _blind(self, path: str, reason: str) -> None:
        self._taken.blind[path] = reason
        self._taken.refusals.append(Refusal(path or ".", reason))


def _identity(descriptor: int) -> tuple[int, int]:
    found = os.fstat(descriptor)
    return found.st_dev, found.st_ino
