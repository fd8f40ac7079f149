"""Objects: the kept contents, in a folder that is private to the user.

    objects/ab/cdef…   copies, named by the SHA-256 of the content
    links/3f/…         contents that were kept without copying them, named by inode, size and mtime of the file
    running/…          states before calls that have not ended, or whose process died (`running.py`)
    tmp/               unfinished ones

Copying 50,000 files of `node_modules` takes long and doubles the space. So the files of a bulky tree (`limits.py`), and
files that are too large to be copied, are cloned where the file system can (FICLONE: btrfs, XFS), else hard linked: the
name survives `rm`, `git clean`, and everything that replaces a file. `PathState.sha256` then carries the id
`link:<inode>-<size>-<mtime>` (hexadecimal; `any` for the mtime of files that git names by their content, since git
renews it). Small files of a bulky tree are copied all the same, up to a number (`limits.py`).

A file that is changed in place takes its hard link along. Its size and mtime show it; the earlier content counts as
lost then. A program that changes such a file in place and puts size and mtime back is not noticed.

A stored link is never written, and neither chmod nor utime is called on it while the user's file has the same inode.

Nothing here is synced: a power cut may leave a torn object. It is found by its size when the store is opened and by its
hash when it is used.
"""

from __future__ import annotations

import os
import re
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from lmagent.undo.copies import CREATE, PIECE, Copies, Unreadable, copy_descriptor, hashing
from lmagent.undo.links import Links

CHANGED = "it was changed in place, and only a hard link to it was kept"
_SHA256 = re.compile("[0-9a-f]{64}")


class Damaged(Exception):
    """A kept content is gone or has changed; `args[0]` says which."""


class Objects:
    """The contents of one store; `total_max` is the bytes of all copies."""

    def __init__(self, folder: Path, total_max: int) -> None:
        self.folder = folder
        self.copies = Copies(folder / "objects", folder / "tmp", total_max)
        self.links = Links(folder / "links", folder / "tmp")

    def has(self, content: str, size: int) -> bool:
        """Return whether a content can be restored, as far as that shows without reading it."""
        if _SHA256.fullmatch(content):
            return self.copies.size(content) == size
        return self.links.is_valid(content)

    def survey(self) -> dict[str, int]:
        """Return the size of each content; -1 for a link, whose id contains its size."""
        return self.copies.survey() | dict.fromkeys(self.links.names(), -1)

    def read(self, content: str, limit: int) -> bytes | None:
        """Return a content, or None if it is gone, damaged or larger than `limit` bytes."""
        try:
            with self._opened(content) as descriptor, open(os.dup(descriptor), "rb") as file:
                data = file.read(limit + 1)
        except (Damaged, OSError):
            return None
        if len(data) > limit:
            return None
        is_link = content.startswith("link:")
        intact = self.links.is_valid(content) if is_link else hashing(data).hexdigest() == content
        return data if intact else None

    def write_to(self, content: str, folder: int, name: str) -> None:
        """Write a content to a new file in a folder; an unfinished file is left there if this raises.

        Raises:
            Damaged: the content is gone or damaged, or cannot be read.
            OSError: the file cannot be written.
        """
        if self.links.give_back(content, folder, name):
            return
        with self._opened(content) as source:
            target = os.open(name, CREATE, 0o600, dir_fd=folder)
            try:
                digest = copy_descriptor(source, target, hashed=not content.startswith("link:"))
            except Unreadable as error:
                raise Damaged(f"its kept content cannot be read: {error}") from error
            finally:
                os.close(target)
        if digest is None:
            if not self.links.is_valid(content):  # changed in place while it was copied
                raise Damaged(CHANGED)
        elif digest != content:
            raise Damaged("its kept content is damaged")

    def equals(self, content: str, descriptor: int) -> bool | None:
        """Return whether an open file has this content; None if the content is gone."""
        try:
            if not content.startswith("link:"):
                return copy_descriptor(descriptor, None) == content
            with self._opened(content) as kept:
                return _same_bytes(kept, descriptor)
        except (Damaged, Unreadable, OSError):
            return None

    @contextmanager
    def _opened(self, content: str) -> Generator[int]:
        if _SHA256.fullmatch(content):
            path = self.copies.path(content)
        elif self.links.is_valid(content):
            path = self.links.path(content)
        else:
            raise Damaged("its content is no longer kept")
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            raise Damaged("its content is no longer kept") from None
        try:
            yield descriptor
        finally:
            os.close(descriptor)


def _same_bytes(one: int, other: int) -> bool:
    if os.fstat(one).st_size != os.fstat(other).st_size:
        return False
    with open(os.dup(one), "rb") as left, open(os.dup(other), "rb") as right:
        right.seek(0)  # a duplicate shares its position with the descriptor, which may have been read
        while piece := left.read(PIECE):
            if right.read(PIECE) != piece:
                return False
    return True
