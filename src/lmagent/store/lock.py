"""The lock of a session: one writer, and a dead owner is noticed at once.

The kernel holds it (`flock`) and lets go when the owner dies, however it dies. The file also names its owner, for
messages and for the list of sessions. On a file system without locks, only that note exists: pid and start time
distinguish a living owner from another process that has got its number.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct

from lmagent.core.decoding import decode_json
from lmagent.core.errors import SessionBusy, StoreError
from lmagent.store.files import FILE_MODE, OPEN_FLAGS, make_private, read_regular, store_error, write_whole

ATTEMPTS, PAUSE = 8, 0.005
"""A lock without a living owner is being released, or inspected for a list: so it is retried, after pauses in seconds.
"""

PATIENCE = 10.0
"""Seconds to wait for a lock that is held for moments only."""

NOTE = 4096
"""Largest note of an owner, in bytes."""

_NO_LOCKS_HERE = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)

KernelLock = Callable[[int], bool]
"""Tries the lock on an open file; OSError if the file system has no locks."""


class Owner(Struct, frozen=True):
    """The owner of a lock.

    Attributes:
        started: when that process started: field 22 of /proc/PID/stat (proc(5)), in clock ticks since boot; 0 without
            /proc.
    """

    pid: int
    started: int = 0
    host: str = ""


class Lock(Struct):
    path: Path
    fd: int

    def release(self) -> None:
        """Release the lock. The file stays: removing it would let two processes lock two files of the same name."""
        if self.fd < 0:
            return
        fd, self.fd = self.fd, -1
        with contextlib.suppress(OSError):
            os.ftruncate(fd, 0)
        os.close(fd)


def _flock(fd: int) -> bool:
    """Take the kernel's lock on an open file, without waiting."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def hold(path: Path, session: str, *, kernel_lock: KernelLock = _flock) -> Lock:
    """Take the lock of a session.

    Raises:
        SessionBusy: a living process holds it.
        OSError: the file cannot be opened.
    """
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(PAUSE)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | OPEN_FLAGS, FILE_MODE)
        if _take(fd, path, kernel_lock):
            return Lock(path, fd)
        os.close(fd)
        owner = read_owner(path)
        if owner is not None and is_alive(owner):
            break
    raise _busy(session, read_owner(path))


@contextmanager
def locked(path: Path, busy: str, *, patience: float = PATIENCE) -> Generator[None]:
    """Hold a lock file, which is made with its folder, and wait so many seconds for it.

    Raises StoreError: it cannot be had; `busy` says what keeps it.
    """
    try:
        make_private(path.parent)
        lock, end = None, time.monotonic() + patience
        while lock is None:
            try:
                lock = hold(path, path.name)
            except SessionBusy:
                if time.monotonic() >= end:
                    raise StoreError(busy, fix="try again when it has ended") from None
                time.sleep(PAUSE)
    except OSError as error:
        raise store_error(error, "a lock could not be taken", path) from error
    try:
        yield
    finally:
        lock.release()


def _take(fd: int, path: Path, kernel_lock: KernelLock) -> bool:
    own = this_process()
    try:
        if not kernel_lock(fd):
            return False
    except OSError as error:
        if error.errno not in _NO_LOCKS_HERE:
            os.close(fd)
            raise
        owner = read_owner(path)
        if owner is not None and is_alive(owner):
            return False
        _sign(fd, own)
        time.sleep(PAUSE)  # two that found it free at once: the later note counts
        return read_owner(path) == own
    try:
        there = os.stat(path)
    except FileNotFoundError:
        return False  # the session was deleted while we waited
    mine = os.fstat(fd)
    if (there.st_dev, there.st_ino) != (mine.st_dev, mine.st_ino):
        return False
    with contextlib.suppress(OSError):  # on a full disk the kernel's lock holds without the note
        _sign(fd, own)
    return True


def _sign(fd: int, owner: Owner) -> None:
    os.lseek(fd, 0, os.SEEK_SET)
    os.ftruncate(fd, 0)
    write_whole(fd, msgspec.json.encode(owner))


def _busy(session: str, owner: Owner | None) -> SessionBusy:
    copy = f"work on a copy: lmagent sessions fork {session}"  # other surfaces have a button for that
    if owner is not None and owner.pid == os.getpid() and owner.host == _host():
        return SessionBusy(f"session {session} is already open in this process", terminal=copy)
    who = f"process {owner.pid}" if owner is not None else "another process"
    where = f" on {owner.host}" if owner is not None and owner.host not in ("", _host()) else ""
    return SessionBusy(
        f"session {session} is in use by {who}{where}",
        fix="stop that process, or work on a copy",
        terminal=f"stop that process, or {copy}",
    )


def read_owner(path: Path) -> Owner | None:
    """Return the owner that a lock file names; None if it is free or the note cannot be read."""
    try:
        return decode_json(read_regular(path, NOTE), Owner)
    except (OSError, ValueError):
        return None


def is_held(path: Path) -> bool:
    """Whether a living process writes the session.

    On one machine the note answers that, so that looking never disturbs a process. For an owner on another machine
    (or in a container) only the kernel knows; the lock is then tried for an instant, which `hold` allows for.
    """
    owner = read_owner(path)
    if owner is None or owner.host == _host():
        return owner is not None and is_alive(owner)
    try:
        fd = os.open(path, os.O_RDWR | OPEN_FLAGS)
    except OSError:
        return True
    try:
        return not _flock(fd)
    except OSError:
        return True
    finally:
        os.close(fd)


def this_process() -> Owner:
    pid = os.getpid()
    return Owner(pid, _start_time(pid) or 0, _host())


def is_alive(owner: Owner) -> bool:
    """Whether the owner still runs; an owner on another machine counts as alive, because nothing here can tell."""
    if owner.host != _host():
        return True
    if os.path.isdir("/proc/self"):
        started = _start_time(owner.pid)
        return started is not None and owner.started in (0, started)
    try:
        os.kill(owner.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _start_time(pid: int) -> int | None:
    """Return field 22 of /proc/PID/stat (proc(5)); None if the process is gone, or only its remains are left."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            fields = stat.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def _host() -> str:
    return os.uname().nodename
