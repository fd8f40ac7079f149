"""Objects: the kept contents, in a folder that is private to the user.

    objects/ab/cdef…   copies, named by the SHA-256 of the content
    links/3f/…         hard links to files, named by inode, size and mtime
    running/…          states before calls that have not ended, or whose process died (`states.py`)
    tmp/               unfinished ones

Copying 50,000 files of `node_modules` takes long and doubles the space. So the files of a bulky tree (`limits.py`), and
files that are too large to be copied, are hard linked: the name survives `rm`, `git clean`, and everything that
replaces a file. `PathState.sha256` then carries the id `link:<inode>-<size>-<mtime>` (hexadecimal).

A file that is changed in place takes its hard link along. Its size and mtime show it; the earlier content counts as
lost then. A program that changes such a file in place and puts size and mtime back is not noticed.

Nothing here is synced: a power cut may leave a torn object. It is found by its size when the store is opened and by its
hash when it is used.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
from collections.abc import Callable, Collection, Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from lmagent.core.errors import StoreError
from lmagent.undo.records import link_id

T = TypeVar("T")
CHANGED = "it was changed in place, and only a hard link to it was kept"
NOT_KEPT = "its content was not kept"
GONE = "its content is no longer kept"
CONTENT = re.compile("[0-9a-f]{64}|link:[0-9a-f]{1,16}-[0-9a-f]{1,16}-[0-9a-f]{1,16}")
CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_PIECE = 1 << 20
_BLOCK = 512  # bytes; the unit of st_blocks, see stat(2)
_REASONS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
}


class Damaged(Exception):
    """A kept content is gone or has changed; `args[0]` says which."""


class Unreadable(Exception):
    """A file cannot be read; `args[0]` says why."""


class Full(Exception):
    """The store has no room for a content."""


class Objects:
    """The contents of one store; `total_max` is the bytes of all copies, `used` is None before the first `survey`."""

    def __init__(self, folder: Path, total_max: int) -> None:
        self.used: int | None = None
        self._total_max = total_max
        self._folder = str(folder)
        self._temporary = f"{folder}/tmp"

    def has(self, content: str, size: int | None = None) -> bool:
        """Return whether a content can be restored, as far as that shows without reading it."""
        found = self._stat(content)
        return found is not None and size in (None, found.st_size)

    def survey(self) -> dict[str, int]:
        """Return the size of each content, and update `used`; a link is not looked at: its id contains its size."""
        found = {prefix + entry.name: _status(entry).st_size for prefix, entry in self._entries("objects")}
        self.used = sum(found.values())
        links = ((entry.name, entry.name.split("-")) for _, entry in self._entries("links"))
        return found | {f"link:{name}": int(parts[1], 16) for name, parts in links if len(parts) == 3}

    def put(self, source: int) -> tuple[bytes, int]:
        """Keep the content of an open file; return its digest and its size. Raises Full, Unreadable or StoreError."""
        sha256, size = copy_descriptor(source, None), os.fstat(source).st_size
        if not self.has(sha256, size):
            with self._new(size) as (descriptor, name):
                sha256 = copy_descriptor(source, descriptor)  # another one, if the file was written to meanwhile
                size = os.fstat(descriptor).st_size
                self._place(name, sha256, size)
        return bytes.fromhex(sha256), size

    def put_link(self, folder: int, name: str, seen: os.stat_result) -> os.stat_result | None:
        """Keep a file by a hard link.

        Returns the file's status now, since a link changes the ctime; None if that cannot be done, as on another file
        system.
        """
        content = link_id(seen)
        if self._stat(content) is not None:
            return seen
        path = self._path(content)
        try:
            with suppress(FileNotFoundError):
                os.unlink(path)  # changed in place since
            _in_folder(path, lambda: os.link(name, path, src_dir_fd=folder, follow_symlinks=False))
            made = os.stat(path, follow_symlinks=False)
            if link_id(made) == content:
                return made
            os.unlink(path)  # another file got the name meanwhile
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
                raise store_error(error, self._folder) from error
        return None

    def read(self, content: str, limit: int) -> bytes | None:
        """Return a content, or None if it is gone, damaged or larger than `limit` bytes."""
        try:
            with self._opened(content) as descriptor, open(os.dup(descriptor), "rb") as file:
                data = file.read(limit + 1)
        except (Damaged, OSError):
            return None
        is_link = content.startswith("link:")
        whole = self.has(content, len(data)) and (is_link or hashlib.sha256(data).hexdigest() == content)
        return data if whole and len(data) <= limit else None

    def write_to(self, content: str, folder: int, name: str) -> None:
        """Write a content to a new file in a folder; an unfinished file is left there if this raises.

        Raises:
            Damaged: the content is gone or damaged, or cannot be read.
            OSError: the file cannot be written.
        """
        if self._give_back(content, folder, name):
            return
        with self._opened(content) as source:
            target = os.open(name, CREATE, 0o600, dir_fd=folder)
            try:
                digest = copy_descriptor(source, target)
            except Unreadable as error:
                raise Damaged(f"its kept content cannot be read: {error}") from error
            finally:
                os.close(target)
        if content.startswith("link:"):
            if self._stat(content) is None:  # changed in place while it was copied
                raise Damaged(CHANGED)
        elif digest != content:
            raise Damaged("its kept content is damaged")

    def equals(self, content: str, descriptor: int) -> bool | None:
        """Return whether an open file has this content; None if the content is gone."""
        try:
            if not content.startswith("link:"):
                return copy_descriptor(descriptor, None) == content
            with self._opened(content) as kept:
                return copy_descriptor(kept, None) == copy_descriptor(descriptor, None)
        except (Damaged, Unreadable, OSError):
            return None

    def collect(self, keep: Collection[str]) -> int:
        """Drop contents, oldest first, until the store is within its limit; return the number of bytes freed.

        Unfinished files, and links to files that were changed in place, are always dropped; ids in `keep` never. No
        other process may use the store.
        """
        unfinished = [*Path(self._temporary).glob("*"), *Path(self._folder).glob("*.new")]
        freed = sum(path.stat().st_size for path in unfinished)
        held = list[tuple[int, int, str, str]]()
        for kind in ("objects", "links"):
            for prefix, entry in self._entries(kind):
                content = f"link:{entry.name}" if kind == "links" else prefix + entry.name
                found = _status(entry)
                if self._stat(content) is None:
                    unfinished.append(Path(entry.path))
                elif found.st_nlink == 1:  # a link whose file has another name takes no space of its own
                    held.append((found.st_ctime_ns, found.st_blocks * _BLOCK, content, entry.path))
        total = sum(cost for _, cost, _, _ in held)
        for _, cost, content, path in sorted(held):
            if total > self._total_max and cost and content not in keep:
                unfinished.append(Path(path))
                total -= cost
                freed += cost
        for path in unfinished:
            path.unlink(missing_ok=True)
        self.survey()
        return freed

    def _path(self, content: str) -> str:
        if content.startswith("link:"):
            inode, _, rest = content.removeprefix("link:").partition("-")
            return f"{self._folder}/links/{inode[-2:]:0>2}/{inode}-{rest}"
        return f"{self._folder}/objects/{content[:2]}/{content[2:]}"

    def _stat(self, content: str) -> os.stat_result | None:
        """Return the status of a content; None if it is gone, or was changed in place."""
        if CONTENT.fullmatch(content) is None:
            return None
        try:
            found = os.stat(self._path(content), follow_symlinks=False)
        except FileNotFoundError:
            return None
        return found if not content.startswith("link:") or link_id(found) == content else None

    def _entries(self, kind: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
        """Yield the copies or the links, each with the name of its folder."""
        with suppress(FileNotFoundError):
            for prefix in os.listdir(f"{self._folder}/{kind}"):
                with suppress(NotADirectoryError), os.scandir(f"{self._folder}/{kind}/{prefix}") as inner:
                    yield from [(prefix, entry) for entry in inner]

    def _is_full(self, size: int) -> bool:
        return self.used is not None and self.used + size > self._total_max

    @contextmanager
    def _new(self, size: int) -> Generator[tuple[int, str]]:
        """Open a new file for a content of `size` bytes, and remove it if the work on it fails."""
        if self._is_full(size):
            raise Full
        name = f"{self._temporary}/{os.urandom(8).hex()}"
        try:
            descriptor = _in_folder(name, lambda: os.open(name, CREATE, 0o600))
            try:
                yield descriptor, name
            except BaseException:
                with suppress(OSError):
                    os.unlink(name)
                raise
            finally:
                os.close(descriptor)
        except OSError as error:
            raise store_error(error, self._folder) from error

    def _place(self, name: str, sha256: str, size: int) -> None:
        path = self._path(sha256)
        _in_folder(path, lambda: os.rename(name, path))
        if self.used is not None:
            self.used += size

    def _give_back(self, content: str, folder: int, name: str) -> bool:
        """Link a kept file under a new name of the user; return False if it must be copied.

        The file is linked only if the store has its last name: then no path of the user shares its mode and times.
        """
        found = self._stat(content) if content.startswith("link:") else None
        if found is None or found.st_nlink != 1:
            return False
        try:
            os.link(self._path(content), name, dst_dir_fd=folder, follow_symlinks=False)
        except FileExistsError:
            raise
        except OSError:
            return False
        return True

    @contextmanager
    def _opened(self, content: str) -> Generator[int]:
        if self._stat(content) is None:
            raise Damaged(GONE)
        descriptor = os.open(self._path(content), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            yield descriptor
        finally:
            os.close(descriptor)


def _in_folder(path: str, act: Callable[[], T]) -> T:
    """Call `act`, which makes `path`; make its folder first if it is missing."""
    try:
        return act()
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
        return act()


def _status(entry: os.DirEntry[str]) -> os.stat_result:
    return entry.stat(follow_symlinks=False)


def copy_descriptor(source: int, target: int | None) -> str:
    """Copy an open file from its beginning, or only read it; return its SHA-256. Raises Unreadable or OSError."""
    digest = hashlib.sha256()
    for piece in _pieces(source):
        digest.update(piece)
        if target is not None:
            write_all(target, piece)
    return digest.hexdigest()


def _pieces(source: int) -> Iterator[bytes]:
    try:
        os.lseek(source, 0, os.SEEK_SET)
        while piece := os.read(source, _PIECE):
            yield piece
    except OSError as error:
        raise Unreadable(error.strerror) from error


def write_all(descriptor: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def store_error(error: OSError, folder: Path | str) -> StoreError:
    """Return the error of a store that cannot be written, with what to do next."""
    why = _REASONS.get(error.errno or 0, error.strerror or str(error))
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    fix = f"free some space on the disk that holds {folder}" if full else f"make {folder} writable for you"
    fix += ", or let less be kept (LMAGENT_UNDO_MB; 0 switches undo off)"
    return StoreError(f"the changes of the next call could not be kept for undo: {why}", fix=fix)
