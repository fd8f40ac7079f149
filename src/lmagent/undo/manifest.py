"""Manifest: the records of the last walk, so that the next one need not read what did not change.

It is a cache: one that is missing, damaged, or of another version is as good as an empty one, and costs reading the
workspace once more. The file is four bytes of CRC-32 and the tree as MessagePack.
"""

from __future__ import annotations

import os
import zlib
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from lmagent.undo.copies import CREATE, write_all
from lmagent.undo.failures import store_error
from lmagent.undo.records import HEAD, LINKED, SEALED, WIDTH, Tree, content_id

VERSION = 1
_CRC = 4


class _Content(Struct, frozen=True):
    version: int
    tree: Tree


Mark = tuple[int, int, int]
"""Inode, size and mtime of the file: whether it is still the one that was read."""


class Manifest:
    """The manifest of one store.

    Args:
        path: its file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def mark(self) -> Mark | None:
        """Which file is there now; None if there is none."""
        try:
            found = os.stat(self._path)
        except OSError:
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns

    def load(self) -> Tree:
        """The tree, or an empty one."""
        try:
            data = self._path.read_bytes()
            if int.from_bytes(data[:_CRC], "big") != zlib.crc32(data[_CRC:]):
                return {}
            content = msgspec.msgpack.decode(memoryview(data)[_CRC:], type=_Content)
        except (OSError, ValueError):
            return {}
        if content.version != VERSION or not all(
            len(record) >= WIDTH for names in content.tree.values() for record in names.values()
        ):
            return {}
        return content.tree

    def save(self, tree: Tree) -> None:
        """Replace the manifest; the caller holds the lock.

        Raises:
            StoreError: it cannot be written; the old one is still there.
        """
        body = msgspec.msgpack.encode(_Content(VERSION, tree))
        beside = self._path.with_name(f"manifest.{os.urandom(6).hex()}.new")
        try:
            descriptor = os.open(beside, CREATE, 0o600)
            try:
                write_all(descriptor, zlib.crc32(body).to_bytes(_CRC, "big"))
                write_all(descriptor, body)
            finally:
                os.close(descriptor)
            os.replace(beside, self._path)
        except OSError as error:
            with suppress(OSError):
                os.unlink(beside)
            raise store_error(error, self._path.parent) from error


def without_missing(tree: Tree, there: dict[str, int]) -> Tree:
    """The tree; files whose content is not among `there` (id -> size, -1 for a link), or torn, count as not kept."""
    checked = Tree()
    for folder, names in tree.items():
        missing = dict[str, bytes]()
        for name, record in names.items():
            content = content_id(record) if len(record) > WIDTH else ""
            if content and there.get(content) != (
                -1 if record[WIDTH:] in (LINKED, SEALED) else HEAD.unpack(record[:WIDTH])[1]
            ):
                missing[name] = record[:WIDTH]
        checked[folder] = names | missing if missing else names
    return checked
