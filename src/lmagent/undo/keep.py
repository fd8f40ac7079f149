"""Keeps the content of one file in the cheapest way that lasts, and makes its record."""

from __future__ import annotations

import os
import stat as modes
import time

from lmagent.core.errors import StoreError
from lmagent.undo.copies import Full, Unreadable, copy_descriptor
from lmagent.undo.limits import Bulk, UndoLimits
from lmagent.undo.names import escaped
from lmagent.undo.objects import Objects
from lmagent.undo.records import (
    HEAD,
    LINKED,
    SEALED,
    WIDTH,
    Record,
    bare,
    content_id,
    same_content,
    signature,
    unsettled,
)

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
        self._linked_some = False
        self._now = time.time_ns()

    def settle(self) -> None:
        """Wait until no change can get the ctime that the last link gave to its file."""
        if self._linked_some:
            time.sleep(_TICK / _SECOND)

    def keep(
        self, folder: int, name: str, seen: os.stat_result, known: Record | None, bulk: Bulk
    ) -> tuple[Record | None, str]:
        """Record a path that is no folder, and keep its content.

        `seen` is the status that the walk saw, `known` an earlier record of the path.

        Returns the record, None if the path is gone by now; and why the content was not kept, or an empty text.

        Raises:
            StoreError: the store cannot be written.
        """
        try:
            if modes.S_ISREG(seen.st_mode):
                return self._file(folder, name, seen, known, bulk)
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
            return self._unreadable(folder, name, seen, known, error)

    def _file(
        self, folder: int, name: str, seen: os.stat_result, known: Record | None, bulk: Bulk
    ) -> tuple[Record, str]:
        large = seen.st_size > self._limits.copy_max
        if link_first := large or (bulk != "" and not self._is_small(seen, bulk)):
            kept = self._linked(folder, name, seen, bulk)
            if kept is not None:
                return kept, ""
        try:
            if large and not self._objects.copies.has_room(seen.st_size):
                raise Full
            return self._copied(folder, name, large=large)
        except Full:
            kept = self._again(folder, name, seen, known)
            if kept is None and not link_first:
                kept = self._linked(folder, name, seen, bulk)
            return (kept, "") if kept is not None else (signature(seen), "the undo store is full (LMAGENT_UNDO_MB)")

    def _again(self, folder: int, name: str, seen: os.stat_result, known: Record | None) -> Record | None:
        """Return the record of a file whose content is in a full store already; None if that is not certain."""
        if known is None or len(known) <= WIDTH or not same_content(known, signature(seen)):
            return None
        descriptor = os.open(name, _READ, dir_fd=folder)
        try:
            digest = known[WIDTH:]
            if copy_descriptor(descriptor, None) != digest.hex() or not self._objects.has(digest.hex(), seen.st_size):
                return None
            return self._settled(os.fstat(descriptor)) + digest
        finally:
            os.close(descriptor)

    def _is_small(self, seen: os.stat_result, bulk: Bulk) -> bool:
        """Count a file of a bulky tree, and return whether it is copied."""
        if bulk == "sealed" or self._small_copies <= 0 or seen.st_size > self._limits.small_max:
            return False
        self._small_copies -= 1
        return True

    def _copied(self, folder: int, name: str, *, large: bool) -> tuple[Record, str]:
        descriptor = os.open(name, _READ, dir_fd=folder)
        try:
            before = os.fstat(descriptor)
            if not modes.S_ISREG(before.st_mode):
                return bare(before), ""
            digest, size = self._copy(descriptor, before.st_size, large=large)
            found = os.fstat(descriptor)
        finally:
            os.close(descriptor)
        if digest and not _differ(before, found) and size == found.st_size:
            return self._settled(found) + digest, ""
        if not digest or large:
            return signature(found), "it was written to while it was copied"
        # A program is writing to the file: the content that was read is one of its states.
        head = HEAD.pack(found.st_mode, size, found.st_mtime_ns, 0, found.st_ino, found.st_uid, found.st_gid)
        return head + digest, ""

    def _copy(self, descriptor: int, size: int, *, large: bool) -> tuple[bytes, int]:
        """Return digest and size. A file that has grown too large for memory has no digest."""
        if large:
            return self._objects.copies.put_file(descriptor), size
        data = _read_all(descriptor, self._limits.copy_max)
        return (self._objects.copies.put(data) if len(data) <= self._limits.copy_max else b""), len(data)

    def _linked(self, folder: int, name: str, seen: os.stat_result, bulk: Bulk) -> Record | None:
        """Keep a file without copying it; None for a file that was just written, which may be written again."""
        sealed = bulk == "sealed"
        if not sealed and self._is_recent(seen.st_mtime_ns):
            if seen.st_size <= self._limits.copy_max and self._objects.copies.has_room(seen.st_size):
                return None
            time.sleep(_TICK / _SECOND)
            now = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if _differ(now, seen):
                return None
        return self._link(folder, name, seen, SEALED if sealed else LINKED)

    def _link(self, folder: int, name: str, seen: os.stat_result, tail: bytes) -> Record | None:
        made = self._objects.links.keep(folder, name, seen, content_id(signature(seen) + tail))
        if made is None:
            return None
        self._linked_some = self._linked_some or made is not seen
        return signature(made) + tail

    def _unreadable(
        self, folder: int, name: str, seen: os.stat_result, known: Record | None, error: OSError | Unreadable
    ) -> tuple[Record, str]:
        """Record a file that may not be read: its owner can link it, and unchanged times mean unchanged content."""
        head = signature(seen)
        if not modes.S_ISREG(seen.st_mode):
            return bare(seen), ""
        if known is not None and len(known) > WIDTH and same_content(known, head):
            return head + known[WIDTH:], ""
        try:
            made = self._link(folder, name, seen, LINKED)
        except StoreError:
            made = None
        if made is not None:
            return made, ""
        return head, (error.strerror or "it cannot be read") if isinstance(error, OSError) else str(error)

    def _settled(self, found: os.stat_result) -> bytes:
        head = signature(found)
        return unsettled(head) if self._is_recent(found.st_ctime_ns) else head

    def _is_recent(self, moment: int) -> bool:
        coarse = moment % _SECOND == 0
        return moment >= self._now - (_COARSE if coarse else _TICK)


def _differ(one: os.stat_result, other: os.stat_result) -> bool:
    return (one.st_ino, one.st_size, one.st_mtime_ns, one.st_ctime_ns) != (
        other.st_ino,
        other.st_size,
        other.st_mtime_ns,
        other.st_ctime_ns,
    )


def _read_all(descriptor: int, limit: int) -> bytes:
    """Return at most one byte more than `limit`, from the beginning."""
    os.lseek(descriptor, 0, os.SEEK_SET)
    pieces = list[bytes]()
    left = limit + 1
    while left > 0 and (piece := os.read(descriptor, min(left, 1 << 20))):
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)
