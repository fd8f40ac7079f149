"""Archive: a `.tar.gz` with the files of a backup, and last its manifest, which proves that it is whole.

workspace/sessions/ID/events.jsonl      below the root that `content.roots` names
data/memory/MEMORY.md
config/config.toml
manifest.json                           {"lmagent_backup": 1, "made", "files": {entry: SHA-256}}
"""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
import zlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Literal, cast

import msgspec
from msgspec import Struct

from lmagent.backup.content import BackupFile, Part, belongs, without_keys
from lmagent.core.decoding import decode_json
from lmagent.core.errors import ConfigError, StoreError
from lmagent.store.files import OPEN_FLAGS, make_private, store_error, sync_folder

VERSION = 1
MANIFEST = "manifest.json"
_LARGEST = 64_000_000  # bytes of a manifest: of half a million files
_PIECE = 1 << 20

State = Literal["missing", "same", "different"]


class BackupManifest(Struct, frozen=True):
    """The files of a backup by their entries, each with its SHA-256; `made` in Unix seconds."""

    lmagent_backup: int
    made: float
    files: dict[str, str]


class BackupReport(Struct, frozen=True):
    """What a backup holds, and why files were left out."""

    files: int
    bytes: int
    left: tuple[str, ...]


class _Hashed:
    """A file that adds the bytes read to a SHA-256."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._digest = hashlib.sha256()

    def read(self, size: int) -> bytes:
        piece = self._file.read(size)
        self._digest.update(piece)
        return piece

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()


def write_archive(target: Path, sources: Iterable[BackupFile], now: float) -> BackupReport:
    """Write a backup; only its owner can read it. Raise StoreError; a file of this name is untouched then.

    A session that is being written at the moment is taken as far as it is.
    """
    beside = target.with_name(f".{target.name}.{os.getpid()}.new")
    files, left, total = dict[str, str](), list[str](), 0
    try:
        fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | OPEN_FLAGS, 0o600)
        with os.fdopen(fd, "wb") as raw:
            with tarfile.open(fileobj=raw, mode="w:gz", compresslevel=6) as archive:
                for source in sources:
                    if not source.entry.isprintable():  # it could not be listed, and need not be UTF-8
                        left.append(f"{source.path}: its name has characters that cannot be shown")
                        continue
                    try:
                        file, size = _opened(source)
                    except (ConfigError, OSError) as fault:
                        left.append(f"{source.path}: {fault}")
                        continue
                    with file:
                        files[source.entry] = _put(archive, source.entry, file, size)
                    total += size
                listed = msgspec.json.encode(BackupManifest(VERSION, now, files))
                _put(archive, MANIFEST, io.BytesIO(listed), len(listed))
            raw.flush()
            os.fsync(fd)
        os.replace(beside, target)
        sync_folder(target.parent)
    except OSError as error:
        with suppress(OSError):
            beside.unlink()
        raise store_error(error, "the backup could not be written", target) from error
    return BackupReport(len(files), total, tuple(left))


def _opened(source: BackupFile) -> tuple[IO[bytes], int]:
    content = without_keys(source.name, source.path)
    if content is not None:
        return io.BytesIO(content), len(content)
    file = os.fdopen(os.open(source.path, os.O_RDONLY | os.O_NONBLOCK | OPEN_FLAGS), "rb")
    return file, os.fstat(file.fileno()).st_size


def _put(archive: tarfile.TarFile, name: str, file: IO[bytes], size: int) -> str:
    """Add a file, and return its SHA-256."""
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, 0o600
    hashed = _Hashed(file)
    archive.addfile(member, cast("IO[bytes]", hashed))
    return hashed.sha256


# --- the way back ---


class Archive:
    """A backup that was read once, and is whole. Raise StoreError for another file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        found: dict[str, str] = {}
        manifest: BackupManifest | None = None
        for name, file in self._members():
            if name == MANIFEST:
                manifest = _manifest(file.read(_LARGEST))
            else:
                found[name] = _sha256(file)
        if manifest is None or manifest.files != found:
            raise self._damaged("it is not whole")
        self.made = manifest.made
        self.files = found

    def states(self, places: Mapping[Part, Path]) -> dict[str, State]:
        """Return how each file of these parts is here, by its entry. Raise StoreError for a way through a link."""
        wanted = {entry: sha256 for entry, sha256 in self.files.items() if entry.split("/")[0] in places}
        return {entry: _state(entry, target_of(entry, places), sha256) for entry, sha256 in wanted.items()}

    def restore(self, wanted: Callable[[str], bool], places: Mapping[Part, Path]) -> None:
        """Write the wanted files, each whole or not at all. Raise StoreError."""
        for name, file in self._members():
            if name in self.files and wanted(name):
                _write(target_of(name, places), file)

    def _members(self) -> Iterable[tuple[str, IO[bytes]]]:
        try:
            with tarfile.open(self.path, mode="r:gz") as archive:
                for member in archive:
                    is_plain = member.isreg() and not member.issparse()
                    is_ours = member.name == MANIFEST or (belongs(member.name) and member.name.isprintable())
                    file = archive.extractfile(member) if is_plain and is_ours else None
                    if file is None:
                        raise self._damaged(f"it holds {member.name[:80]!r}, which is no file of a backup")
                    yield member.name, file
        except (tarfile.TarError, EOFError, zlib.error) as error:
            raise self._damaged(str(error)) from error
        except OSError as error:
            raise store_error(error, "the backup could not be read", self.path) from error

    def _damaged(self, why: str) -> StoreError:
        return StoreError(f"{self.path} cannot be restored: {why}", fix="use another backup; nothing was changed")


def target_of(entry: str, places: Mapping[Part, Path]) -> Path:
    """Return the place of a file. Raise StoreError if a folder on the way is a link, which could lead elsewhere."""
    part, *names = entry.split("/")
    root = places[cast("Part", part)]
    target = root
    for name in names:
        target = target / name
        try:
            is_link = target.is_symlink()
        except OSError as error:
            raise store_error(error, "a file of the backup has no place here", target) from error
        if is_link:
            raise StoreError(f"{target} is a link; nothing was restored", fix="move the link away, then try again")
    return target


def _manifest(content: bytes) -> BackupManifest:
    try:
        manifest = decode_json(content, BackupManifest)
    except ValueError as error:
        raise StoreError(f"the list of a backup's files cannot be read: {error}", fix="use another backup") from error
    if manifest.lmagent_backup != VERSION:
        text = f"the backup has version {manifest.lmagent_backup}; this lmagent reads {VERSION}"
        raise StoreError(text, fix="restore it with the lmagent that made it")
    return manifest


def _sha256(file: IO[bytes]) -> str:
    hashed = _Hashed(file)
    while hashed.read(_PIECE):
        pass
    return hashed.sha256


def _state(entry: str, path: Path, sha256: str) -> State:
    """Compare a file that is here; one of settings without its keys, as the backup has it."""
    try:
        with suppress(ConfigError):
            if path.exists() and (content := without_keys(entry.partition("/")[2], path)) is not None:
                return "same" if hashlib.sha256(content).hexdigest() == sha256 else "different"
        with open(path, "rb") as file:
            return "same" if _sha256(file) == sha256 else "different"
    except FileNotFoundError:
        return "missing"
    except OSError as error:
        raise store_error(error, "a file that is here could not be read", path) from error


def _write(path: Path, file: IO[bytes]) -> None:
    beside = path.with_name(f".{path.name}.new")
    try:
        make_private(path.parent)
        beside.unlink(missing_ok=True)
        with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | OPEN_FLAGS, 0o600), "wb") as fresh:
            while piece := file.read(_PIECE):
                fresh.write(piece)
            fresh.flush()
            os.fsync(fresh.fileno())
        os.replace(beside, path)
        sync_folder(path.parent)
    except OSError as error:
        with suppress(OSError):
            beside.unlink()
        raise store_error(error, "a file could not be restored", path) from error
