"""Opens a path beneath a directory without following any symbolic link, and finds the link-free form of a path.

There are two implementations with the same guarantee: `openat2` (Linux 5.6, one call), and a walk that opens each
component with O_NOFOLLOW from the descriptor of the one before. Neither checks a path and then opens it by name, so
there is no race between the two.
"""

from __future__ import annotations

import errno
import os
import struct
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

from lmagent.tools.paths import Parts

Opener = Callable[[int, Parts, int], int]
"""(descriptor of the root, parts, flags) → a new descriptor; raises OSError, with ELOOP or ENOTDIR at a link."""

_OPENAT2 = 437  # the same number on every architecture but alpha
_HOW = struct.Struct("=QQQ")  # struct open_how: flags, mode, resolve
_RESOLVE = 0x08 | 0x04 | 0x02  # RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS, linux/openat2.h
_AGAIN = 16  # EAGAIN: a concurrent rename disturbed the kernel's resolution; how often to try again
_LONGEST = 4000  # bytes; the kernel takes paths below 4096, the walk has no limit
_HOPS = 40  # links in one path, as in the kernel
_STEP = getattr(os, "O_PATH", 0) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def opener(kernel: bool | None = None) -> Opener:
    """Return `openat2` if the kernel has it, else the walk; `kernel` requires one of them.

    Raises:
        OSError: `openat2` was required and is missing.
    """
    if kernel is False:
        return open_by_walking
    found = _openat2()
    if found is None and kernel:
        raise OSError(errno.ENOSYS, "the kernel has no openat2")
    return found or open_by_walking


def open_by_walking(root: int, parts: Parts, flags: int) -> int:
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


def open_directory(root: int, parts: Parts, opening: Opener) -> int:
    """Return a descriptor of a directory, good for operations beneath it (not for listing it)."""
    return opening(root, parts, _STEP)


def make_directory(root: int, parts: Parts) -> tuple[int, bool]:
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


class LeadsOut(Exception):
    """A symbolic link leads out of the root; `args[0]` is the path of the link."""


def without_links(root: int, parts: Parts, where: Path, opening: Opener) -> Parts:
    """Return the same place with every symbolic link replaced by its target.

    The result is only a candidate: opening it refuses links again.

    Args:
        root: descriptor of the root.
        where: path of the root, for links with an absolute target inside it.

    Raises:
        LeadsOut: a link points to a place outside the root.
        OSError: ELOOP, there are too many links.
    """
    pending, done, hops = list(reversed(parts)), list[str](), 0
    link = ""
    while pending:
        name = pending.pop()
        if name in ("", "."):
            continue
        if name == "..":
            if not done:
                raise LeadsOut(link)
            done.pop()
            continue
        target = _read_link(root, tuple(done), name, opening)
        if target is None:
            done.append(name)
            continue
        hops, link = hops + 1, "/".join((*done, name))
        if hops > _HOPS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        if target.startswith("/"):
            target = _relative(target, where, link)
            done.clear()
        pending.extend(reversed(target.split("/")))
    return tuple(done)


def _read_link(root: int, parent: Parts, name: str, opening: Opener) -> str | None:
    try:
        directory = open_directory(root, parent, opening)
    except FileNotFoundError:
        return None
    try:
        return os.readlink(name, dir_fd=directory)
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENOENT):  # not a link; not there
            return None
        raise
    finally:
        os.close(directory)


def _relative(target: str, where: Path, link: str) -> str:
    for root in (str(where), os.path.realpath(where)):
        if target == root or target.startswith(root.rstrip("/") + "/"):
            return target[len(root) :]
    raise LeadsOut(link)


@cache
def _openat2() -> Opener | None:
    """Return the system call as a function; None if it does not exist or a filter forbids it."""
    if sys.platform != "linux":
        return None
    try:
        import ctypes  # 2 ms, and only a run that touches files pays them

        syscall = ctypes.CDLL(None, use_errno=True).syscall
    except (ImportError, OSError, AttributeError):
        return None
    number, size = ctypes.c_long(_OPENAT2), ctypes.c_size_t(_HOW.size)
    # A structure of size 0 is EINVAL exactly where the call exists.
    if syscall(number, -1, b".", _HOW.pack(0, 0, 0), ctypes.c_size_t(0)) != -1 or ctypes.get_errno() != errno.EINVAL:
        return None

    def opening(root: int, parts: Parts, flags: int) -> int:
        path = os.fsencode("/".join(parts)) or b"."
        if len(path) > _LONGEST:
            return open_by_walking(root, parts, flags)
        how = _HOW.pack(flags | os.O_CLOEXEC, 0, _RESOLVE)
        for _ in range(_AGAIN):
            descriptor: int = syscall(number, root, path, how, size)
            if descriptor >= 0:
                return descriptor
            problem = ctypes.get_errno()
            if problem not in (errno.EAGAIN, errno.EINTR):
                raise OSError(problem, os.strerror(problem))
        return open_by_walking(root, parts, flags)

    return opening
