"""Folders as ZIP files, streamed without a copy in memory or on disk."""

from __future__ import annotations

import os
import stat
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from msgspec import Struct
from starlette.responses import Response, StreamingResponse

from lmagent.core.errors import ToolError
from lmagent.gateway.api.paths import beneath, read_at, shown
from lmagent.gateway.api.pictures import SANDBOX
from lmagent.gateway.http.errors import Refusal
from lmagent.gateway.http.route import Call, Route
from lmagent.tools.beneath import Beneath
from lmagent.tools.paths import is_below, is_internal

MOST_BYTES = 2_000_000_000
"""Most bytes of files in a ZIP file."""

MOST_FILES = 20_000
"""Most files in a ZIP file."""

DEEPEST = 200
"""Most levels of folders."""

BLOCK = 262_144
"""Bytes per read of a file."""

LEFT_OUT = "LEFT-OUT.txt"
"""The entry that names the files that could not be read."""


class FolderQuery(Struct, frozen=True):
    """A folder: relative to the workspace, empty for the workspace itself."""

    path: str = ""


class Sendable(Struct, frozen=True):
    """The number of files in a folder that can be sent."""

    files: int


async def check_folder(call: Call) -> Sendable:
    """Check that a folder can be sent: a browser shows no reason when a download fails."""
    _, paths = await beneath(call.gateway.host.workspace, call.query.path, _listed)
    return Sendable(len(paths))


async def send_folder(call: Call) -> Response:
    """Send a folder as a ZIP file, without links and the internal files of git and lmagent."""
    workspace: Path = call.gateway.host.workspace
    name, paths = await beneath(workspace, call.query.path, _listed)
    name = f"{name.rpartition('/')[2] or workspace.name or 'workspace'}.zip"
    told = f"attachment; filename*=UTF-8''{quote(name, safe='')}"
    headers = {**SANDBOX, "Content-Disposition": told}
    return StreamingResponse(_zipped(workspace, paths), media_type="application/zip", headers=headers)


def _listed(files: Beneath, path: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Return the folder's displayed name, and its files: the path on disk and the name in the ZIP file.

    Raises:
        Refusal: there are too many files, or they are too large.
    """
    here, left = files.locate(path), [(path, 0)]
    found = list[tuple[str, str]]()
    size = 0
    while left:
        folder, depth = left.pop()
        for entry in files.listdir(folder, sizes=True):
            name = entry.path.rpartition("/")[2]
            if is_internal(name) or any(is_below(entry.path.split("/"), place) for place in files.own):
                continue
            if entry.kind == "dir":
                left.append((f"./{entry.path}", depth + 1))
            elif entry.kind == "file":
                inner = entry.path if here == "." else entry.path.removeprefix(f"{here}/")
                found.append((f"./{entry.path}", shown(inner)))
                size += entry.size
            if size > MOST_BYTES or len(found) > MOST_FILES or depth > DEEPEST:
                raise Refusal(
                    413,
                    "too_large",
                    f"{shown(here)} holds more than {MOST_BYTES // 1_000_000:,} MB or {MOST_FILES:,} files",
                    fix="download the folders in it one by one",
                )
    return "" if here == "." else shown(here), tuple(sorted(found))


class _Sink:
    """Buffers the ZIP writer's output until it is taken."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._at = 0

    def write(self, data: bytes) -> int:
        self._pieces.append(bytes(data))
        self._at += len(data)
        return len(data)

    def tell(self) -> int:
        return self._at

    def flush(self) -> None: ...

    def taken(self) -> bytes:
        data = b"".join(self._pieces)
        self._pieces.clear()
        return data


def _zipped(workspace: Path, paths: tuple[tuple[str, str], ...]) -> Iterator[bytes]:
    sink = _Sink()
    left = list[str]()
    with Beneath(workspace) as files, zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as packed:  # type: ignore[arg-type]
        for path, name in paths:
            try:
                descriptor = files.open_read(path)
            except ToolError as error:  # deleted meanwhile, or not readable
                left.append(f"{name}: {error.message}")
                continue
            try:
                with packed.open(_entry(name, os.fstat(descriptor)), "w", force_zip64=True) as entry:
                    at = 0
                    while block := read_at(descriptor, at, BLOCK):
                        at += len(block)
                        entry.write(block)
                        yield sink.taken()
            finally:
                os.close(descriptor)
        if left:
            packed.writestr(LEFT_OUT, "\n".join(left) + "\n")
    yield sink.taken()


def _entry(name: str, facts: os.stat_result) -> zipfile.ZipInfo:
    when = max(time.localtime(facts.st_mtime)[:6], (1980, 1, 1, 0, 0, 0))
    entry = zipfile.ZipInfo(name, min(when, (2107, 12, 31, 23, 59, 58)))
    entry.external_attr = (stat.S_IFREG | stat.S_IMODE(facts.st_mode)) << 16
    entry.compress_type = zipfile.ZIP_DEFLATED
    return entry


ROUTES = (
    Route(
        "GET",
        "/api/files/zip/check",
        check_folder,
        "Whether a folder can be sent as a ZIP file",
        FolderQuery,
        answer=Sendable,
        errors=(404, 413),
    ),
    Route(
        "GET",
        "/api/files/zip",
        send_folder,
        "A folder as a ZIP file",
        FolderQuery,
        media="application/zip",
        errors=(404, 413),
    ),
)
