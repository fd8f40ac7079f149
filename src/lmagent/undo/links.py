"""Contents that are kept without being copied, as a clone or a hard link named by inode, size and mtime."""

from __future__ import annotations

import errno
import os
import re
import sys
from contextlib import suppress
from pathlib import Path

from lmagent.undo.copies import CREATE, entries, place
from lmagent.undo.failures import store_error

LINK = "link:([0-9a-f]{1,16})-([0-9a-f]{1,16})-([0-9a-f]{1,16}|any)"
_ID = re.compile(LINK)
_FICLONE = 0x40049409  # linux/fs.h: _IOW(0x94, 9, int)
_UINT64 = 0xFFFF_FFFF_FFFF_FFFF
_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


class Links:
    """Contents by inode, size and mtime; only files on the file system of `folder` can be kept here."""

    def __init__(self, folder: Path, temporary: Path) -> None:
        self._folder = str(folder)
        self._temporary = str(temporary)
        self._no_clones = set[int]()  # devices that do not support clones
        self._no_links = set[int]()

    def path(self, content: str) -> str:
        inode, _, rest = content.removeprefix("link:").partition("-")
        return f"{self._folder}/{inode[-2:]:0>2}/{inode}-{rest}"

    def names(self) -> list[str]:
        """Return the ids of all contents that have a name here, valid or not."""
        return [f"link:{entry.name}" for _, entry in entries(self._folder)]

    def is_valid(self, content: str) -> bool:
        """Return whether a content exists and has the size and time that it had when it was kept."""
        found = _ID.fullmatch(content)
        if found is None:
            return False
        try:
            there = os.stat(self.path(content), follow_symlinks=False)
        except OSError:
            return False
        timely = found[3] == "any" or there.st_mtime_ns & _UINT64 == int(found[3], 16)
        return timely and there.st_size == int(found[2], 16)

    def is_name_of(self, content: str, inode: int) -> bool:
        """Return whether a content is kept by a hard link to this very file."""
        if _ID.fullmatch(content) is None:
            return False
        try:
            return os.stat(self.path(content), follow_symlinks=False).st_ino == inode
        except OSError:
            return False

    def keep(self, folder: int, name: str, seen: os.stat_result, content: str) -> os.stat_result | None:
        """Keep a file as a clone, else as a hard link.

        Returns the file's status now, since a link changes the ctime; None if neither works.

        Raises:
            StoreError: the disk is full or not writable.
        """
        try:
            if self.is_valid(content):
                return seen
            path = self.path(content)
            if seen.st_dev not in self._no_clones and self._clone(folder, name, seen, path):
                return seen
            if seen.st_dev not in self._no_links:
                return self._link(folder, name, seen, path)
        except OSError as error:
            if error.errno in _DISK:
                raise store_error(error, self._folder) from error
        return None

    def give_back(self, content: str, folder: int, name: str) -> bool:
        """Link a kept file under a new name of the user; return False if it must be copied.

        The file is linked only if the store has its last name: then no path of the user shares its mode and times.
        """
        path = self.path(content)
        try:
            if os.stat(path, follow_symlinks=False).st_nlink != 1 or not self.is_valid(content):
                return False
        except OSError:
            return False
        try:
            os.link(path, name, dst_dir_fd=folder, follow_symlinks=False)
        except FileExistsError:
            raise
        except OSError:
            return False
        return True

    def _link(self, folder: int, name: str, seen: os.stat_result, path: str) -> os.stat_result | None:
        try:
            self._link_to(folder, name, path)
        except OSError as error:
            if error.errno in (errno.EXDEV, errno.EOPNOTSUPP, errno.ENOSYS):
                self._no_links.add(seen.st_dev)
            raise
        made = os.stat(path, follow_symlinks=False)
        if _same(made, seen):
            return made
        os.unlink(path)  # another file got the name meanwhile
        return None

    @staticmethod
    def _link_to(folder: int, name: str, path: str) -> None:
        for _ in range(2):
            try:
                os.link(name, path, src_dir_fd=folder, follow_symlinks=False)
                return
            except FileNotFoundError:
                os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
            except FileExistsError:  # changed in place since
                os.unlink(path)
        os.link(name, path, src_dir_fd=folder, follow_symlinks=False)

    def _clone(self, folder: int, name: str, seen: os.stat_result, path: str) -> bool:
        if sys.platform != "linux":
            self._no_clones.add(seen.st_dev)
            return False
        import fcntl

        try:
            source = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        except OSError:  # a file that may not be read can still be linked
            return False
        temporary = f"{self._temporary}/{os.urandom(8).hex()}"
        try:
            os.makedirs(self._temporary, 0o700, exist_ok=True)
            target = os.open(temporary, CREATE, 0o600)
            try:
                fcntl.ioctl(target, _FICLONE, source)
            finally:
                os.close(target)
            if not _same(os.fstat(source), seen):
                raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
            os.utime(temporary, ns=(seen.st_mtime_ns, seen.st_mtime_ns))
            place(temporary, path)
        except OSError as error:
            with suppress(OSError):
                os.unlink(temporary)
            if error.errno in (errno.EXDEV, errno.EOPNOTSUPP, errno.ENOTTY, errno.EINVAL, errno.ENOSYS):
                self._no_clones.add(seen.st_dev)
            if error.errno in _DISK:
                raise
            return False
        finally:
            os.close(source)
        return True


def _same(now: os.stat_result, seen: os.stat_result) -> bool:
    return (now.st_ino, now.st_size, now.st_mtime_ns) == (seen.st_ino, seen.st_size, seen.st_mtime_ns)
