"""Access to the files of a workspace, and to no others.

Every path that a model gives is resolved from a descriptor of the workspace, name by name, each opened with O_NOFOLLOW
from the descriptor of the one before. Only when that fails for a link, the link-free form is computed, checked again
and opened with links refused again. So a link that stays inside works, and one that is swapped in at the last moment is
never followed. No path is checked and then opened by its name, so there is no race between the two.

Writes go to a new file beside the target which is then renamed over it. A hard link that shares its content with a file
outside therefore keeps its old content outside: the name in the workspace gets a new file.
"""

from __future__ import annotations

import errno
import os
import stat as modes
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal, Self, TypeVar

from msgspec import Struct

from lmagent.config.paths import own_places
from lmagent.core.errors import ToolError, WorkspaceError
from lmagent.policy.paths import inside
from lmagent.tools import paths
from lmagent.tools.paths import Parts
from lmagent.tools.sanitize import one_line

T = TypeVar("T")
Kind = Literal["file", "dir", "link", "other"]
Stamp = tuple[int, int, int, int]
"""(device, inode, size, modification time in ns): identifies the version of a file that was read."""

_ATTEMPTS = 8
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY  # a FIFO without a writer must not block the open
_LIST = os.O_RDONLY | os.O_DIRECTORY
_STEP = getattr(os, "O_PATH", 0) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Entry(Struct, frozen=True):
    """A name in a directory; `path` is relative to the workspace, `size` in bytes where it was asked for."""

    path: str
    kind: Kind
    size: int = 0


class LoadedFile(Struct, frozen=True):
    """A file's content, and the file's stamp before it was read."""

    data: bytes
    stamp: Stamp


class Beneath:
    """A workspace, open; links in the absolute path `root` are the user's own and are followed.

    Raises WorkspaceError.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.own = tuple(place.parts for place in own_places(root, os.environ))
        try:
            self._root = os.open(root, _LIST | os.O_CLOEXEC)
        except OSError as error:
            raise WorkspaceError(
                f"the workspace {root} cannot be opened: {error.strerror}",
                fix="use another folder",
                terminal="give another folder with --workspace",
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._root >= 0:
            os.close(self._root)
            self._root = -1

    def locate(self, path: str) -> str:
        """Return the path relative to the workspace, without a look at the disk: the session's name of the file."""
        return paths.shown(paths.parse(path, self.root))

    def open_read(self, path: str) -> int:
        """Return a descriptor of a regular file, for reading; the caller closes it. Raises ToolError."""
        return self._at(path, self._open_regular)

    def load(self, path: str, limit: int | None = None) -> LoadedFile:
        """Return the content of a regular file, or its first `limit` bytes; raises as `open_read`."""
        descriptor = self.open_read(path)
        with open(descriptor, "rb") as file, _told(path):
            stamp = _stamp(os.fstat(descriptor))
            return LoadedFile(file.read(-1 if limit is None else limit), stamp)

    def read_bytes(self, path: str, limit: int | None = None) -> bytes:
        return self.load(path, limit).data

    def stat(self, path: str) -> os.stat_result:
        """Return the status of a path; links inside the workspace are followed. Raises ToolError."""
        return self._at(path, self._stat)

    def listdir(self, path: str, *, sizes: bool = False) -> list[Entry]:
        """Return the entries of a directory in the order of their names; links are named, not followed.

        Raises ToolError.
        """
        prefix = "" if (name := self.locate(path)) == "." else name + "/"
        return self._at(path, lambda parts: self._list(parts, prefix, sizes))

    def mkdir(self, path: str) -> bool:
        """Make a directory and its parents; return False if it already exists. Raises ToolError."""

        def make(parts: Parts) -> bool:
            descriptor, made = _make_directory(self._root, parts)
            os.close(descriptor)
            return made

        return self._at(path, make, write=True)

    def write_atomic(self, path: str, content: bytes, *, over: Stamp | Literal["any"] | None = "any") -> bool:
        """Replace or create a regular file, whole or not at all; parents are made. Return True if it was created.

        The mode of an existing file is kept, and its owner as far as that is allowed. Content is on the disk before the
        name points to it. `over` must be there at the moment of the replacement: the file of this stamp, no file
        (None), or any.

        Raises ToolError; the file is unchanged.
        """
        if path.endswith("/"):
            raise ToolError(f"{one_line(path)} names a directory. Give the path of a file.", data={"code": "path"})

        def replace(parts: Parts) -> bool:
            if not parts:
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            directory, _ = _make_directory(self._root, parts[:-1])
            try:
                return _replace(directory, parts[-1], content, over)
            finally:
                os.close(directory)

        return self._at(path, replace, write=True)

    def _at(self, path: str, act: Callable[[Parts], T], *, write: bool = False) -> T:
        """Call `act` at a path. `act` refuses links by ELOOP or ENOTDIR; it is then called with the link-free form."""
        parts, settled_before = paths.parse(path, self.root), False
        with _told(path):
            for _ in range(_ATTEMPTS):
                paths.guard(parts, write=write, own=self.own)
                try:
                    return act(parts)
                except OSError as error:
                    if error.errno not in (errno.ELOOP, errno.ENOTDIR):
                        raise
                    settled = _without_links(parts, self.root)
                    if settled == parts and settled_before:  # once may be a link that was there for a moment
                        raise
                    settled_before = settled == parts
                    parts = settled
        raise ToolError(f"{one_line(path)} keeps changing while it is opened. Try again.", data={"code": "race"})

    def _open_regular(self, parts: Parts) -> int:
        descriptor = open_by_walking(self._root, parts, _READ)
        try:
            _require_regular(os.fstat(descriptor))
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _stat(self, parts: Parts) -> os.stat_result:
        directory = open_by_walking(self._root, parts[:-1], _STEP)
        try:
            found = os.stat(parts[-1] if parts else ".", dir_fd=directory, follow_symlinks=False)
        finally:
            os.close(directory)
        if modes.S_ISLNK(found.st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        return found

    def _list(self, parts: Parts, prefix: str, sizes: bool) -> list[Entry]:
        directory = open_by_walking(self._root, parts, _LIST)
        try:
            with os.scandir(directory) as entries:
                found = [Entry(prefix + item.name, _kind(item), _size(item) if sizes else 0) for item in entries]
        finally:
            os.close(directory)
        return sorted(found, key=lambda entry: entry.path)


@contextmanager
def _told(path: str) -> Generator[None]:
    """Turn errors at a path into text for the model."""
    name = one_line(path)
    try:
        yield
    except _LeadsOut:
        raise ToolError(
            f"{name} is refused: a symbolic link in it leads out of the workspace. Work on files in the workspace.",
            data={"code": "path"},
        ) from None
    except OSError as error:
        text, code = _REASONS.get(error.errno or 0, (f"it failed: {error.strerror}.", "failed"))
        raise ToolError(f"{name}: {text}", data={"code": code}) from error


_REASONS = {
    errno.ENOENT: ("there is no such file or directory.", "missing"),
    errno.ENOTDIR: ("a part of the path is a file, not a directory.", "kind"),
    errno.EISDIR: ("it is a directory, not a file. Use ls to list it.", "directory"),
    errno.EACCES: ("permission denied by the file system.", "permission"),
    errno.EPERM: ("permission denied by the file system.", "permission"),
    errno.ENOSPC: ("the disk is full; nothing was changed. Free some space first.", "disk"),
    errno.EDQUOT: ("the disk quota is used up; nothing was changed. Free some space first.", "disk"),
    errno.EROFS: ("the file system is read-only; nothing was changed.", "permission"),
    errno.ELOOP: ("its symbolic links go round in circles.", "path"),
    errno.ENXIO: ("it is a FIFO, a socket or a device, not a regular file; it is neither read nor written.", "kind"),
    errno.ENAMETOOLONG: ("the name is too long for the file system.", "path"),
}


def open_by_walking(root: int, parts: Parts, flags: int) -> int:
    """Return a new descriptor; raises OSError, with ELOOP or ENOTDIR at a link."""
    if not parts:
        return os.open(".", flags | os.O_CLOEXEC, dir_fd=root)
    current = root
    try:
        for name in parts[:-1]:
            inner = os.open(name, _STEP, dir_fd=current)
            if current != root:
                os.close(current)
            current = inner
        return os.open(parts[-1], flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=current)
    finally:
        if current != root:
            os.close(current)


def _make_directory(root: int, parts: Parts) -> tuple[int, bool]:
    """Return a descriptor of a directory, and whether it was made; missing parents are made too."""
    current, made = os.open(".", _STEP, dir_fd=root), False
    try:
        for name in parts:
            try:
                inner = os.open(name, _STEP, dir_fd=current)
                made = False
            except FileNotFoundError:
                with suppress(FileExistsError):  # another process made it meanwhile
                    os.mkdir(name, dir_fd=current)
                inner, made = os.open(name, _STEP, dir_fd=current), True
            os.close(current)
            current = inner
    except BaseException:
        os.close(current)
        raise
    return current, made


class _LeadsOut(Exception):
    """A symbolic link leads out of the workspace."""


def _without_links(parts: Parts, root: Path) -> Parts:
    """Return the same place with its links resolved: only a candidate, since opening it refuses links again.

    Raises _LeadsOut.
    """
    try:
        found = inside(os.path.realpath(os.path.join(root, *parts)), str(root))
    except OSError:  # a link that was swapped during the look
        return parts
    if found is None:
        raise _LeadsOut
    return tuple(found.split("/")) if found else ()


def _replace(directory: int, name: str, content: bytes, over: Stamp | Literal["any"] | None) -> bool:
    old = _present(directory, name)
    temporary = f"{paths.TEMPORARY}{os.urandom(8).hex()}.tmp"
    descriptor = os.open(temporary, _CREATE, 0o666, dir_fd=directory)  # the umask is the user's
    try:
        try:
            if old is not None:
                _keep_owner_and_mode(descriptor, old)
            with open(descriptor, "wb", closefd=False) as file:
                file.write(content)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        now = _present(directory, name)
        if over != "any" and over != (None if now is None else _stamp(now)):
            raise ToolError(
                f"{one_line(name)} was changed by another program while this call ran; nothing was written. "
                "Read it again first.",
                data={"code": "stale"},
            )
        os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=directory)
        raise
    return old is None


def _present(directory: int, name: str) -> os.stat_result | None:
    """Return the status of the regular, writable file of that name, or None; a link is ELOOP."""
    try:
        found = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if modes.S_ISLNK(found.st_mode):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    _require_regular(found)
    if not found.st_mode & 0o222:  # a rename would bypass the protection that the owner chose
        raise ToolError(
            f"{one_line(name)} is write-protected (mode {modes.S_IMODE(found.st_mode):o}); nothing was changed.",
            data={"code": "permission"},
        )
    return found


def _keep_owner_and_mode(descriptor: int, old: os.stat_result) -> None:
    if (old.st_uid, old.st_gid) != (os.geteuid(), os.getegid()):
        with suppress(PermissionError):
            os.fchown(descriptor, old.st_uid, old.st_gid)
    os.fchmod(descriptor, old.st_mode & 0o777)  # new content must not inherit the set-user-id bit


def _require_regular(found: os.stat_result) -> None:
    if modes.S_ISREG(found.st_mode):
        return
    if modes.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    raise OSError(errno.ENXIO, os.strerror(errno.ENXIO))


def _stamp(found: os.stat_result) -> Stamp:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _kind(item: os.DirEntry[str]) -> Kind:
    if item.is_symlink():
        return "link"
    if item.is_dir(follow_symlinks=False):
        return "dir"
    return "file" if item.is_file(follow_symlinks=False) else "other"


def _size(item: os.DirEntry[str]) -> int:
    try:
        return item.stat(follow_symlinks=False).st_size
    except OSError:  # gone meanwhile
        return 0
