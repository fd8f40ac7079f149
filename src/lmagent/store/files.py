"""Private folders and durable files, and the failures of the operating system in words."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path

from lmagent.core.errors import StoreError

FOLDER_MODE = 0o700
FILE_MODE = 0o600
OPEN_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW
"""A link in the place of a log or a lock is refused: a checked-out workspace must not lead writes elsewhere."""


def make_private(folder: Path) -> list[Path]:
    """Make a folder and its missing parents, for the owner only; returns the folders that got a new entry."""
    missing: list[Path] = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for new in reversed(missing):
        try:
            os.mkdir(new, FOLDER_MODE)
        except FileExistsError:
            if not new.is_dir():
                raise
    return [new.parent for new in missing]


def write_whole(fd: int, content: bytes) -> None:
    """Write all of `content`, continuing after short writes; an OSError may leave part of it written."""
    written = os.write(fd, content)
    while written < len(content):
        written += os.write(fd, memoryview(content)[written:])


def sync_file(fd: int) -> None:
    if hasattr(os, "fdatasync"):
        os.fdatasync(fd)
    else:
        os.fsync(fd)


def sync_folder(folder: Path) -> None:
    """Sync the entries of a folder to the disk."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | OPEN_FLAGS)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def read_regular(path: Path, most: int = -1) -> bytes:
    """Return the content of a file, or its first `most` bytes. Raises OSError, also for a link or a pipe."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | OPEN_FLAGS)
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        return file.read(most)


def append_lines(path: Path, content: bytes) -> None:
    """Append lines to a private file, which is made if it is missing; they are on the disk when this returns."""
    made = make_private(path.parent)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | OPEN_FLAGS, FILE_MODE)
    try:
        size = os.fstat(fd).st_size
        os.lseek(fd, max(0, size - 1), os.SEEK_SET)
        if size and os.read(fd, 1) != b"\n":
            content = b"\n" + content  # the writer of the last line was killed in the middle of it
        write_whole(fd, content)
        sync_file(fd)
    finally:
        os.close(fd)
    for folder in {*made, *([path.parent] if not size else [])}:
        sync_folder(folder)


def write_new(path: Path, content: bytes) -> None:
    """Make a private file with this content, synced to the disk; an OSError may leave part of it written."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | OPEN_FLAGS, FILE_MODE)
    try:
        write_whole(fd, content)
        sync_file(fd)
    finally:
        os.close(fd)


def replace_whole(path: Path, beside: Path, content: bytes) -> None:
    """Replace the content of a file atomically; it is on the disk when this returns.

    After an OSError the file is unchanged or, if only syncing its folder failed, replaced.

    `beside` is in the same folder; a leftover of a killed process there is replaced.
    """
    beside.unlink(missing_ok=True)
    try:
        write_new(beside, content)
        os.replace(beside, path)
    except BaseException:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


_ELSEWHERE = "use a workspace that can be written to"
_FREE = "free some space on the disk that holds {folder}, then resume the session"
_KNOWN = {
    errno.ENOSPC: ("the disk is full ({free} free)", _FREE),
    errno.EDQUOT: ("the disk is full ({free} free)", _FREE),
    errno.EEXIST: ("it exists already", "use another name"),
    errno.EROFS: ("the file system is read-only", _ELSEWHERE),
    errno.EFBIG: ("a limit on the size of files is reached", "raise the limit (`ulimit -f unlimited`)"),
    errno.EACCES: ("permission denied", "make {folder} readable and writable for you, or " + _ELSEWHERE),
    errno.EPERM: ("permission denied", "make {folder} readable and writable for you, or " + _ELSEWHERE),
}
"""Failures of the operating system: the reason, and what to do."""


def store_error(error: OSError, what: str, path: Path) -> StoreError:
    """Return the error for the user; `what` failed, as in "the log could not be written"."""
    why, fix = _KNOWN.get(error.errno or 0, (error.strerror or str(error), "check {folder}, then try again"))
    fix = fix.format(folder=path.parent)
    typed = f"{fix}: --workspace FOLDER" if fix.endswith(_ELSEWHERE) else ""
    return StoreError(f"{what}: {why.format(free=_free_space(path))}: {path}", fix=fix, terminal=typed)


def _free_space(path: Path) -> str:
    """Return the free space for an ordinary user on the file system of a path, as text."""
    import shutil  # not light

    with suppress(OSError):
        free = shutil.disk_usage(path.parent).free
        return f"{free / 1e6:.1f} MB" if free >= 1e6 else f"{free // 1024} kB"
    return "almost nothing"
