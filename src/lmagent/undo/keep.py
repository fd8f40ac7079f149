"""Keeps the content of one file in the cheapest way that lasts, and makes its record."""

from __future__ import annotations

import os
import stat as modes
import time

from lmagent.core.errors import StoreError
from lmagent.undo.limits import UndoLimits
from lmagent.undo.objects import Full, Objects, Unreadable
from lmagent.undo.records import LINKED, Record, bare, escaped, signature

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC  # a FIFO must not block the open
_TICK = 20_000_000
"""Nanoseconds in which two changes may get the same time: file systems use the kernel's tick (10 ms at CONFIG_HZ=100,
the slowest)."""
_COARSE = 2_000_000_000
"""The same for file systems that keep whole seconds (FAT: two seconds)."""
_SECOND = 1_000_000_000


class Keeper:
    """Keeps contents during one walk; unless `strict`, a content is not kept if the store cannot be written."""

    def __init__(self, objects: Objects, limits: UndoLimits, *, strict: bool = True) -> None:
        self._objects = objects
        self._limits = limits
        self._strict = strict
        self._small_copies = limits.small_copies
        self._now = time.time_ns()

    def keep(self, folder: int, name: str, seen: os.stat_result, *, bulky: bool) -> tuple[Record | None, str]:
        """Record a path that is no folder, and keep its content; `seen` is the status that the walk saw.

        Returns the record, None if the path is gone by now; and why the content was not kept, or an empty text.
        Raises StoreError.
        """
        try:
            if modes.S_ISREG(seen.st_mode):
                return self._file(folder, name, seen, bulky=bulky)
            if modes.S_ISLNK(seen.st_mode):
                return signature(seen) + escaped(os.readlink(name, dir_fd=folder)).encode(), ""
            return bare(seen), ""
        except FileNotFoundError:
            return None, ""
        except StoreError:
            if self._strict:
                raise
            return signature(seen), "the store cannot be written"
        except (OSError, Unreadable) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            return signature(seen), why or "it cannot be read"

    def _file(self, folder: int, name: str, seen: os.stat_result, *, bulky: bool) -> tuple[Record, str]:
        large = seen.st_size > self._limits.copy_max
        # A file that was just written may be written again, which a link does not survive.
        if large or (bulky and not self._is_recent(seen.st_mtime_ns) and not self._is_small(seen)):
            linked = self._linked(folder, name, seen)
            if linked is not None:
                return linked, ""
        try:
            return self._copied(folder, name)
        except PermissionError:
            linked = self._linked(folder, name, seen)  # its owner can link it
            if linked is None:
                raise
        except Full:
            linked = self._linked(folder, name, seen)
        return (linked, "") if linked is not None else (signature(seen), "the undo store is full (LMAGENT_UNDO_MB)")

    def _is_small(self, seen: os.stat_result) -> bool:
        """Count a file of a bulky tree, and return whether it is copied."""
        if self._small_copies <= 0 or seen.st_size > self._limits.small_max:
            return False
        self._small_copies -= 1
        return True

    def _linked(self, folder: int, name: str, seen: os.stat_result) -> Record | None:
        made = self._objects.put_link(folder, name, seen)
        return None if made is None else signature(made) + LINKED

    def _copied(self, folder: int, name: str) -> tuple[Record, str]:
        with open(name, "rb", opener=lambda path, _: os.open(path, _READ, dir_fd=folder)) as file:
            before = os.fstat(file.fileno())
            if not modes.S_ISREG(before.st_mode):
                return bare(before), ""
            digest, size = self._objects.put(file.fileno())
            found = os.fstat(file.fileno())
        same = signature(before) == signature(found) and size == found.st_size
        # While a program is writing to a file, the content that was read is one of its states.
        return signature(found, settled=same and not self._is_recent(found.st_ctime_ns), size=size) + digest, ""

    def _is_recent(self, moment: int) -> bool:
        coarse = moment % _SECOND == 0
        return moment >= self._now - (_COARSE if coarse else _TICK)
