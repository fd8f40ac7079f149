"""Private folders and durable files: the few calls on which everything above depends."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

FOLDER_MODE = 0o700
FILE_MODE = 0o600
OPEN_FLAGS = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
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
    """Sync the entries of a folder to the disk, where the system can do that."""
    if not hasattr(os, "O_DIRECTORY"):  # Windows has no such call; its file systems journal their entries
        return
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | OPEN_FLAGS)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


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

    Args:
        beside: where the content is written first, in the same folder; a leftover of a killed process is replaced.
        content: all of it.
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
