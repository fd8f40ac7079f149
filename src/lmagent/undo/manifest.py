"""Keeps the records of the last walk, so that the next walk need not read unchanged files.

It is a cache: a manifest that is missing, damaged, or of another version counts as empty, and costs reading the
workspace once more. The file is four bytes of CRC-32 and the tree as MessagePack.
"""

from __future__ import annotations

import os
import zlib
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct, field

from lmagent.core.decoding import decode_msgpack
from lmagent.undo.copies import CREATE, write_all
from lmagent.undo.failures import store_error
from lmagent.undo.records import HEAD, WIDTH, Record, Tree, content_id, is_link

VERSION = 3
_CRC = 4


class State(Struct, frozen=True):
    """The result of one walk: `paths` is None for the whole workspace; `blind` has unreadable folders, and why."""

    tree: Tree = field(default_factory=dict[str, dict[str, Record]])
    paths: tuple[str, ...] | None = None
    blind: dict[str, str] = field(default_factory=dict[str, str])
    version: int = VERSION


Mark = tuple[int, int, int]
"""Inode, size and mtime of the file: whether it is still the file that was read."""


class Manifest:
    def __init__(self, path: Path) -> None:
        self._path = path

    def mark(self) -> Mark | None:
        return mark_of(self._path)

    def load(self) -> State:
        return read_state(self._path) or State()

    def save(self, state: State) -> None:
        """Replace the manifest; the caller holds the lock.

        Raises:
            StoreError: the file cannot be written; the old file is still there.
        """
        beside = self._path.with_name(f"manifest.{os.urandom(6).hex()}.new")
        try:
            write_state(beside, state)
            os.replace(beside, self._path)
        except OSError as error:
            with suppress(OSError):
                os.unlink(beside)
            raise store_error(error, self._path.parent) from error


def mark_of(path: Path) -> Mark | None:
    """Return which file is at a path; None without a file."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def read_state(path: Path) -> State | None:
    try:
        data = path.read_bytes()
        if int.from_bytes(data[:_CRC], "big") != zlib.crc32(data[_CRC:]):
            return None
        state = decode_msgpack(memoryview(data)[_CRC:], State)
    except (OSError, ValueError):
        return None
    if state.version != VERSION or not all(
        len(record) >= WIDTH for names in state.tree.values() for record in names.values()
    ):
        return None
    return state


def write_state(path: Path, state: State) -> None:
    """Write a new file. A part of it may be there after an OSError."""
    body = msgspec.msgpack.encode(state)
    descriptor = os.open(path, CREATE, 0o600)
    try:
        write_all(descriptor, zlib.crc32(body).to_bytes(_CRC, "big"))
        write_all(descriptor, body)
    finally:
        os.close(descriptor)


def without_missing(tree: Tree, there: dict[str, int]) -> Tree:
    """Return the tree with torn and missing contents marked as not kept. `there` has sizes by id, -1 for a link."""
    checked = Tree()
    for folder, names in tree.items():
        missing = dict[str, bytes]()
        for name, record in names.items():
            content = content_id(record) if len(record) > WIDTH else ""
            if content and there.get(content) != (-1 if is_link(record[WIDTH:]) else HEAD.unpack(record[:WIDTH])[1]):
                missing[name] = record[:WIDTH]
        checked[folder] = names | missing if missing else names
    return checked
