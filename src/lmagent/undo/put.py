"""Puts one file, link or folder in its place, or removes it.

Each function works in a folder that is given by its descriptor. A file is written under a name beside its own and
renamed over it. That name is made from its own, so that the next attempt finds and replaces the leftovers of a crash.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat as modes
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress

from lmagent.core.changes import PathState
from lmagent.undo.reach import set_mode
from lmagent.undo.records import kind_of

_OWN = 0o700
_NOT_ALLOWED = (errno.EPERM, errno.EACCES, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS)
"""The errors of chown where it is not allowed; EINVAL for a number that a user namespace does not know."""
TEMPORARY = ".lmagent-undo-"


class PathChanged(Exception):
    """The path was changed between the look at it and now."""


def put(folder: int, name: str, want: PathState, found: os.stat_result | None, make: Callable[[str], None]) -> str:
    """Put a file or link in its place, whole or not at all. Return the result of `set_meta`.

    `found` is the present path, which may be replaced; `make` makes the new one under another name.
    Raises PathChanged or OSError.
    """
    with _beside(folder, name, make) as temporary:
        missing = set_meta(folder, temporary, want)
        _confirm(folder, name, found)
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    return missing


def make_folder(folder: int, name: str, want: PathState) -> None:
    """Make a writable folder; it gets its mode and its owner when its content is there. Raises OSError."""
    with _beside(folder, name, lambda temporary: os.mkdir(temporary, _OWN, dir_fd=folder)) as temporary:
        set_mode(folder, temporary, want.mode | _OWN)
        _confirm(folder, name, None)
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)


def remove(folder: int, name: str, found: os.stat_result) -> None:
    """Remove the path that was found. Raises PathChanged or OSError."""
    _confirm(folder, name, found)
    if modes.S_ISDIR(found.st_mode):
        os.rmdir(name, dir_fd=folder)
    else:
        os.unlink(name, dir_fd=folder)


def set_meta(folder: int, name: str, want: PathState) -> str:
    """Set owner, time and, last, the mode, by which a restart recognises the step: chown clears the set-user-id bit.

    Returns the owner that the path cannot be given to, as text; empty if it was set.
    """
    found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    missing = list[str]()
    for owner, number, now in (("user", want.uid, found.st_uid), ("group", want.gid, found.st_gid)):
        if number in (-1, now):
            continue
        user, group = (number, -1) if owner == "user" else (-1, number)
        try:
            os.chown(name, user, group, dir_fd=folder, follow_symlinks=False)
        except OSError as error:
            if error.errno not in _NOT_ALLOWED:
                raise
            missing.append(f"{owner} {number}")
    if want.kind != "folder":
        os.utime(name, ns=(time.time_ns(), want.mtime), dir_fd=folder, follow_symlinks=False)
    if want.kind != "link":
        set_mode(folder, name, want.mode)
    return " and ".join(missing)


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
def _beside(folder: int, name: str, make: Callable[[str], None]) -> Generator[str]:
    """Make a path under a name beside another one, which may be left over from a crash; remove it after an error."""
    temporary = TEMPORARY + hashlib.sha256(os.fsencode(name)).hexdigest()[:24]
    try:
        try:
            make(temporary)
        except FileExistsError:
            _remove(folder, temporary)
            make(temporary)
        yield temporary
    except BaseException:
        with suppress(OSError):
            _remove(folder, temporary)
        raise


def _remove(folder: int, name: str) -> None:
    try:
        os.unlink(name, dir_fd=folder)
    except (IsADirectoryError, PermissionError):  # EPERM on macOS, see unlink(2) in POSIX
        os.rmdir(name, dir_fd=folder)
