"""States on disk: the last walk, so that the next one need not read unchanged files, and the states before calls.

`manifest` is a cache: one that is missing, damaged, or of another version counts as empty, and costs reading the
workspace once more. `running/` has a file for each call that has not ended, or whose process died before it recorded
the call's changes; the state of a whole workspace is the manifest, so it costs one hard link. A file is four bytes of
CRC-32 and the state as MessagePack.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct, field

from lmagent.core.decoding import decode_msgpack
from lmagent.undo.objects import CREATE, store_error, write_all
from lmagent.undo.records import WIDTH, Record, Tree

VERSION = 4
_CRC = 4
_MOST = 16
"""States of dead processes that are kept: their sessions may never be resumed."""


class State(Struct, frozen=True):
    """The result of one walk: `paths` is None for the whole workspace.

    `blind` are folders that could not be looked into, and why: nothing below them is known.
    """

    tree: Tree = field(default_factory=dict[str, dict[str, Record]])
    paths: tuple[str, ...] | None = None
    blind: dict[str, str] = field(default_factory=dict[str, str])
    version: int = VERSION


Mark = tuple[int, int, int]
"""Inode, size and mtime of the manifest: whether it is still the file that was read or written."""


class StateFiles:
    def __init__(self, folder: Path) -> None:
        self._manifest = folder / "manifest"
        self._folder = folder / "running"

    def mark(self) -> Mark | None:
        return _mark(self._manifest)

    def load(self) -> State:
        """Return the state of the manifest."""
        return _read(self._manifest) or State()

    def save(self, state: State) -> None:
        """Replace the manifest; the caller holds the lock. Raises StoreError."""
        beside = self._manifest.with_name(f"manifest.{os.urandom(6).hex()}.new")
        try:
            _write(beside, state)
            os.replace(beside, self._manifest)
        except OSError as error:
            beside.unlink(missing_ok=True)
            raise store_error(error, self._manifest.parent) from error

    def keep(self, call: str, state: State, mark: Mark | None) -> None:
        """Keep the state before a call; `mark` is the manifest's, if that holds this very state. Raises StoreError."""
        path = self._path(call)
        try:
            self._folder.mkdir(0o700, exist_ok=True)
            path.unlink(missing_ok=True)
            if mark is not None:
                with suppress(OSError):  # a file system without links
                    os.link(self._manifest, path)
            if mark is None or _mark(path) != mark:  # another process may have replaced the manifest
                path.unlink(missing_ok=True)
                _write(path, state)
        except OSError as error:
            with suppress(OSError):
                path.unlink(missing_ok=True)
            raise store_error(error, self._folder) from error

    def before(self, call: str) -> State | None:
        """Return the state before a call."""
        return _read(self._path(call))

    def forget(self, call: str) -> None:
        with suppress(OSError):
            self._path(call).unlink()

    def running(self) -> list[State]:
        """Return the newest states before calls; drop older and damaged ones."""
        found = list[State]()
        for path in sorted(self._folder.glob("*"), key=lambda path: path.stat().st_ctime_ns, reverse=True):
            state = _read(path) if len(found) < _MOST else None
            if state is None:
                path.unlink(missing_ok=True)
            else:
                found.append(state)
        return found

    def _path(self, call: str) -> Path:
        return self._folder / hashlib.sha256(call.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _mark(path: Path) -> Mark | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _read(path: Path) -> State | None:
    try:
        data = path.read_bytes()
        if int.from_bytes(data[:_CRC], "big") != zlib.crc32(data[_CRC:]):
            return None
        state = decode_msgpack(memoryview(data)[_CRC:], State)
    except (OSError, ValueError):
        return None
    whole = all(len(record) >= WIDTH for names in state.tree.values() for record in names.values())
    return state if whole and state.version == VERSION else None


def _write(path: Path, state: State) -> None:
    """Write a new file. A part of it may be there after an OSError."""
    body = msgspec.msgpack.encode(state)
    descriptor = os.open(path, CREATE, 0o600)
    try:
        write_all(descriptor, zlib.crc32(body).to_bytes(_CRC, "big"))
        write_all(descriptor, body)
    finally:
        os.close(descriptor)
