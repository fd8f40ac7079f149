"""Copies: contents named by their SHA-256, each a file of its own."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

from lmagent.undo.failures import store_error

CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
PIECE = 1 << 20


class Unreadable(Exception):
    """The file whose content was to be copied cannot be read; `args[0]` says why."""


class Full(Exception):
    """The store has no room for a content."""


class Copies:
    """Contents by hash.

    Args:
        temporary: a folder on the same file system for half-written contents.
        total_max: bytes of all contents; while `used` is unknown, there is room.

    Attributes:
        used: bytes; None before the first `survey`.
    """

    def __init__(self, folder: Path, temporary: Path, total_max: int) -> None:
        self.used: int | None = None
        self._total_max = total_max
        self._folder = str(folder)
        self._temporary = str(temporary)

    def path(self, sha256: str) -> str:
        return f"{self._folder}/{sha256[:2]}/{sha256[2:]}"

    def size(self, sha256: str) -> int | None:
        try:
            return os.stat(self.path(sha256), follow_symlinks=False).st_size
        except FileNotFoundError:
            return None

    def has_room(self, size: int) -> bool:
        return self.used is None or self.used + size <= self._total_max

    def put(self, data: bytes) -> bytes:
        """Keep a content; return its digest.

        Raises:
            Full: the content is not there yet, and there is no room.
            StoreError: the content cannot be written; no file is left.
        """
        digest = hashing(data)
        sha256 = digest.hexdigest()
        try:
            if self.size(sha256) != len(data):
                if not self.has_room(len(data)):
                    raise Full
                descriptor, name = self._begin()
                with _finished(descriptor, name):
                    write_all(descriptor, data)
                    self._finish(descriptor, name, sha256)
        except OSError as error:
            raise store_error(error, self._folder) from error
        return digest.digest()

    def put_file(self, source: int) -> bytes:
        """Keep the content of an open file without holding it in memory; return its digest. The caller checks for room.

        Raises:
            StoreError: the content cannot be written; no file is left.
            Unreadable: the source cannot be read.
        """
        try:
            descriptor, name = self._begin()
            with _finished(descriptor, name):
                sha256 = copy_descriptor(source, descriptor) or ""
                self._finish(descriptor, name, sha256)
        except OSError as error:
            raise store_error(error, self._folder) from error
        return bytes.fromhex(sha256)

    def survey(self) -> dict[str, int]:
        """Return the size of each content by its hash, and update `used`."""
        found = dict[str, int]()
        for prefix, entry in entries(self._folder):
            found[prefix + entry.name] = entry.stat(follow_symlinks=False).st_size
        self.used = sum(found.values())
        return found

    def _begin(self) -> tuple[int, str]:
        name = f"{self._temporary}/{os.urandom(8).hex()}"
        try:
            return os.open(name, CREATE, 0o600), name
        except FileNotFoundError:
            os.makedirs(self._temporary, 0o700, exist_ok=True)
            return os.open(name, CREATE, 0o600), name

    def _finish(self, descriptor: int, name: str, sha256: str) -> None:
        size = os.fstat(descriptor).st_size
        place(name, self.path(sha256))
        if self.used is not None:
            self.used += size


@contextmanager
def _finished(descriptor: int, name: str) -> Generator[None]:
    """Close a file that is being written, and remove it if the work on it fails."""
    try:
        yield
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise
    finally:
        os.close(descriptor)


def place(name: str, path: str) -> None:
    try:
        os.rename(name, path)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
        os.rename(name, path)


def entries(folder: str) -> list[tuple[str, os.DirEntry[str]]]:
    """Return the files of a store's folder, each with the name of its folder."""
    found = list[tuple[str, os.DirEntry[str]]]()
    with suppress(FileNotFoundError):
        for prefix in os.listdir(folder):
            with suppress(NotADirectoryError), os.scandir(f"{folder}/{prefix}") as inner:
                found += [(prefix, entry) for entry in inner]
    return found


def copy_descriptor(source: int, target: int | None, *, hashed: bool = True) -> str | None:
    """Copy an open file from its beginning, or only read it; return its SHA-256, None if not `hashed`.

    Raises:
        Unreadable: the source cannot be read.
        OSError: the target cannot be written.
    """
    digest = hashing() if hashed else None
    for piece in _pieces(source):
        if digest is not None:
            digest.update(piece)
        if target is not None:
            write_all(target, piece)
    return None if digest is None else digest.hexdigest()


def _pieces(source: int) -> Iterator[bytes]:
    try:
        os.lseek(source, 0, os.SEEK_SET)
        while piece := os.read(source, PIECE):
            yield piece
    except OSError as error:
        raise Unreadable(error.strerror) from error


def write_all(descriptor: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


class Digest(Protocol):
    def update(self, data: bytes, /) -> None: ...

    def digest(self) -> bytes: ...

    def hexdigest(self) -> str: ...


def hashing(data: bytes = b"") -> Digest:
    """Return a SHA-256 of `data` that can be continued."""
    import hashlib  # loads OpenSSL, 2 ms that a run without writes does not pay

    return hashlib.sha256(data)
