"""Lets several processes use one store.

`lock` is held while the manifest is written, and during a restore. `users` is held, shared, by each process that has
kept something: while another process holds it, `collect` removes nothing, since that process's contents may not be
recorded yet. The kernel releases both when their owner dies.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from lmagent.core.errors import StoreError
from lmagent.undo.objects import store_error

_NO_LOCKS_HERE = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)
_PATIENCE, _PAUSE = 60.0, 0.005  # seconds; a restore of many thousand files holds the lock for some of them
_OPEN = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


class StoreLock:
    """The locks of one store, whose folder is made on first use, private to the user."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = self._users = -1

    def enter(self) -> None:
        """Make the store if it is missing, and become one of its users. Raises StoreError."""
        if self._users >= 0:
            return
        try:
            self._folder.parent.mkdir(parents=True, exist_ok=True)
            self._folder.mkdir(0o700, exist_ok=True)
            self._lock = os.open(self._folder / "lock", _OPEN, 0o600)
            users = os.open(self._folder / "users", _OPEN, 0o600)
        except OSError as error:
            raise store_error(error, self._folder) from error
        with self.alone():
            _flock(users, fcntl.LOCK_SH)
        self._users = users

    def leave(self) -> None:
        for descriptor in (self._users, self._lock):
            if descriptor >= 0:
                os.close(descriptor)
        self._users = self._lock = -1

    @contextmanager
    def alone(self) -> Generator[None]:
        """Hold the lock. Raises StoreError."""
        deadline = time.monotonic() + _PATIENCE
        while not _flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB):
            if time.monotonic() > deadline:
                raise StoreError(
                    f"another process holds the undo store {self._folder}", fix="wait for it, or stop that process"
                )
            time.sleep(_PAUSE)
        try:
            yield
        finally:
            _flock(self._lock, fcntl.LOCK_UN)

    @contextmanager
    def only_user(self) -> Generator[bool]:
        """Hold the lock; yield whether no other process uses the store, which holds until the block ends.

        The kernel may drop a shared lock when it cannot be made exclusive. That is harmless here: a process that takes
        `users` in any mode holds `lock` meanwhile.
        """
        with self.alone():
            only = _flock(self._users, fcntl.LOCK_EX | fcntl.LOCK_NB)
            try:
                yield only
            finally:
                _flock(self._users, fcntl.LOCK_SH)


def _flock(descriptor: int, operation: int) -> bool:
    """Take or release a lock; return whether that worked. On a file system without locks, it always does."""
    try:
        fcntl.flock(descriptor, operation)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        if error.errno not in _NO_LOCKS_HERE:
            raise
    return True
