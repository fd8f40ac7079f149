"""Blobs: big content beside the log, named by its SHA-256, so that damage is noticed."""

from __future__ import annotations

import os
import re
from pathlib import Path

from lmagent.core.errors import StoreError
from lmagent.store.files import FILE_MODE, OPEN_FLAGS, make_private, replace_whole, store_error, sync_file, sync_folder

_HANDLE = re.compile(r"[0-9a-f]{8,64}")


class Blobs:
    """The blobs of one session; `folder` is made with the first one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, content: bytes) -> str:
        """Keep `content` and return its SHA-256; an existing blob stays.

        Raises StoreError: it could not be written; no part of it is left over.
        """
        sha256 = _sha256(content)
        path = self.folder / sha256
        try:
            if _holds(path, content):
                return sha256
            make_private(self.folder)
            _write(path, content)
        except OSError as error:
            raise store_error(error, "a large result could not be kept", path) from error
        return sha256

    def adopt(self, path: Path) -> str:
        """Move a file of any size into the blobs, without reading it into memory.

        Raises StoreError if it could not be moved.
        """
        import hashlib
        import shutil

        try:
            with path.open("rb") as file:
                sha256 = hashlib.file_digest(file, "sha256").hexdigest()
            make_private(self.folder)
            shutil.move(path, self.folder / sha256)  # a rename, where both are on one file system
            os.chmod(self.folder / sha256, FILE_MODE)
            fd = os.open(self.folder / sha256, os.O_RDWR | OPEN_FLAGS)
            try:
                sync_file(fd)
            finally:
                os.close(fd)
            sync_folder(self.folder)
        except OSError as error:
            raise store_error(error, "a large result could not be kept", path) from error
        return sha256

    def get(self, handle: str) -> bytes:
        """Return the content of a blob, by its hash or a unique prefix of at least 8 hexadecimal digits.

        Raises StoreError if the blob does not exist, or its content no longer matches its hash.
        """
        sha256 = self._find(handle)
        path = self.folder / sha256
        try:
            content = path.read_bytes()
        except OSError as error:
            raise store_error(error, f"artifact {handle} could not be read", path) from error
        if _sha256(content) != sha256:
            raise StoreError(f"artifact {handle} is damaged: its content no longer matches its hash")
        return content

    def _find(self, handle: str) -> str:
        prefix = handle.strip().lower()
        if not _HANDLE.fullmatch(prefix):
            raise StoreError(f"{handle!r} names no artifact", fix="use at least 8 digits of its hash")
        try:
            names = [name for name in os.listdir(self.folder) if name.startswith(prefix) and len(name) == 64]
        except OSError:
            names = []
        if len(names) == 1:
            return names[0]
        if names:
            raise StoreError(f"{len(names)} artifacts begin with {handle}", fix="use more digits of its hash")
        raise StoreError(f"there is no artifact {handle}")


def link_blobs(source: Path, target: Path, names: set[str]) -> None:
    """Give a forked session the blobs that it refers to: by hard link, or as a copy where links are not possible.

    A blob that the source has lost is skipped: reading it will say so.
    """
    there = sorted(os.listdir(source)) if source.is_dir() else []
    for name in there:
        if name[:12] not in names or not _HANDLE.fullmatch(name) or not (source / name).is_file():
            continue
        make_private(target)
        try:
            os.link(source / name, target / name)
        except FileExistsError:
            continue
        except OSError:
            _write(target / name, (source / name).read_bytes())


def _sha256(content: bytes) -> str:
    import hashlib  # loads OpenSSL, 2 ms that a session without big results does not pay

    return hashlib.sha256(content).hexdigest()


def _holds(path: Path, content: bytes) -> bool:
    try:
        return path.stat().st_size == len(content) and path.read_bytes() == content
    except FileNotFoundError:
        return False


def _write(path: Path, content: bytes) -> None:
    replace_whole(path, path.parent / f".{path.name[:16]}.{os.urandom(6).hex()}.new", content)
