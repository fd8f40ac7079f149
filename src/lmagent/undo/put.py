"""Puts one file, link or folder in its place, or removes it.

Each function works in a folder that is given by its descriptor. A file is written under a name beside its own and
renamed over it. That name is made from its own, so that the next attempt finds and replaces the leftovers of a crash.
"""

from __future__ import annotations

import errno
import os
import stat as modes
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress

from lmagent.core.changes import PathState
from lmagent.undo.copies import hashing
from lmagent.undo.names import unescaped
from lmagent.undo.reach import set_mode
from lmagent.undo.records import kind_of

Source = Callable[[int, str], None]
"""Makes a new file (folder, name); raises FileExistsError if the name is taken."""

_OWN = 0o700
_NOT_ALLOWED = (errno.EPERM, errno.EACCES, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS)
"""The errors of chown where it is not allowed; EINVAL for a number that a user namespace does not know."""
TEMPORARY = ".lmagent-undo-"


class PathChanged(Exception):
    """The path was changed between the look at it and now."""


def put_file(folder: int, name: str, want: PathState, found: os.stat_result | None, source: Source) -> str:
    """Put a file in its place, whole or not at all. Return the result of `set_owner`.

    `found` is the present file, which may be replaced; `source` writes the content.

    Raises:
        Changed: something else is there.
        OSError: the file cannot be written; the present file is unchanged.
    """
    with _beside(folder, name) as temporary:
        _anew(folder, temporary, lambda: source(folder, temporary))
        missing = set_owner(folder, temporary, want)
        set_times(folder, temporary, want.mtime)
        set_mode(folder, temporary, want.mode)
        _confirm(folder, name, found)
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    return missing


def put_link(folder: int, name: str, want: PathState, found: os.stat_result | None) -> str:
    """Put a symbolic link in its place; arguments, result and errors as `put_file`."""
    with _beside(folder, name) as temporary:
        _anew(folder, temporary, lambda: os.symlink(unescaped(want.target), temporary, dir_fd=folder))
        missing = set_owner(folder, temporary, want)
        set_times(folder, temporary, want.mtime)
        _confirm(folder, name, found)
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    return missing


def make_folder(folder: int, name: str, want: PathState) -> None:
    """Make a writable folder; it gets its mode and its owner when its content is there.

    Raises:
        OSError: the folder cannot be made, or something is there.
    """
    with _beside(folder, name) as temporary:  # so that it never has a mode that only the umask explains
        _anew(folder, temporary, lambda: os.mkdir(temporary, _OWN, dir_fd=folder))
        set_mode(folder, temporary, want.mode | _OWN)
        _confirm(folder, name, None)
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)


def remove(folder: int, name: str, found: os.stat_result) -> None:
    """Remove the path that was found.

    Raises:
        Changed: something else is there.
        OSError: the path cannot be removed, or is a folder that is not empty.
    """
    _confirm(folder, name, found)
    if modes.S_ISDIR(found.st_mode):
        os.rmdir(name, dir_fd=folder)
    else:
        os.unlink(name, dir_fd=folder)


def set_times(folder: int, name: str, mtime: int) -> None:
    """Set the modification time, in nanoseconds; for a link, that of the link itself."""
    os.utime(name, ns=(time.time_ns(), mtime), dir_fd=folder, follow_symlinks=False)


def set_owner(folder: int, name: str, want: PathState) -> str:
    """Set owner and group before the mode: chown clears the set-user-id bit.

    Returns the owner that the path cannot be given to, as text; empty if it was set.
    """
    found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    missing = list[str]()
    for what, number, now in (("user", want.uid, found.st_uid), ("group", want.gid, found.st_gid)):
        if number in (-1, now):
            continue
        user, group = (number, -1) if what == "user" else (-1, number)
        try:
            os.chown(name, user, group, dir_fd=folder, follow_symlinks=False)
        except OSError as error:
            if error.errno not in _NOT_ALLOWED:
                raise
            missing.append(f"{what} {number}")
    return " and ".join(missing)


def is_owned(found: os.stat_result, have: PathState, want: PathState | None) -> bool:
    """Return whether a path belongs to one of the two sides; ids that this user may not set are not compared."""
    sides = [have] if want is None else [have, want]
    root, groups = os.geteuid() == 0, {os.getegid(), *os.getgroups()}
    users, owning = {side.uid for side in sides}, {side.gid for side in sides}
    if root and -1 not in users and found.st_uid not in users:
        return False
    return -1 in owning or found.st_gid in owning or not (root or owning <= groups)


def _confirm(folder: int, name: str, found: os.stat_result | None) -> None:
    """Look once more. Between this and the rename is an instant that no file system closes."""
    try:
        now = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        now = None
    if _stamp(now) != _stamp(found):
        raise PathChanged


def _stamp(found: os.stat_result | None) -> tuple[object, ...] | None:
    if found is None:
        return None
    if modes.S_ISDIR(found.st_mode):  # its size and time change with its contents
        return kind_of(found.st_mode), found.st_ino
    return kind_of(found.st_mode), found.st_ino, found.st_size, found.st_mtime_ns


@contextmanager
def _beside(folder: int, name: str) -> Generator[str]:
    temporary = TEMPORARY + hashing(os.fsencode(name)).hexdigest()[:24]
    try:
        yield temporary
    except BaseException:
        with suppress(OSError):
            _away(folder, temporary)
        raise


def _anew(folder: int, temporary: str, make: Callable[[], None]) -> None:
    try:
        make()
    except FileExistsError:  # of a restore that crashed
        _away(folder, temporary)
        make()


def _away(folder: int, name: str) -> None:
    try:
        os.unlink(name, dir_fd=folder)
    except (IsADirectoryError, PermissionError):  # EPERM on macOS, see unlink(2) in POSIX
        os.rmdir(name, dir_fd=folder)
