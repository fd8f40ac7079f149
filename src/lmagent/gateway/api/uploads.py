"""Uploads: images in `.lmagent/uploads` that wait for their message, for a day.

An upload is checked by its bytes when it arrives and again when a message takes it: the folder is not trusted.
"""

from __future__ import annotations

import base64
import os
import re
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from anyio import to_thread
from msgspec import Struct
from msgspec.structs import replace

from lmagent.core.messages import Image, Message, Part
from lmagent.gateway.api.files import judged
from lmagent.gateway.http.errors import Refusal
from lmagent.gateway.http.route import Call, Routes
from lmagent.store.files import FILE_MODE, OPEN_FLAGS, make_private, sync_file, write_whole
from lmagent.tools.resolve import open_by_walking

ROUTES = Routes()

MAX_UPLOAD = 20_000_000  # bytes of an upload
MAX_WAITING = 1_000_000_000  # bytes of all waiting uploads

# Bytes of an image that are converted to or from base64 at once, a multiple of three. The conversion keeps the event
# loop waiting, even from a thread.
PIECE = 300_000

KEPT = 86_400.0  # seconds for which an upload waits for its message
SCHEME = "upload:"  # prefix of an image part that names an upload instead of holding its bytes

_FOLDER = (".lmagent", "uploads")
_ID = re.compile(r"[0-9a-f]{32}")


class Upload(Struct, frozen=True):
    """An accepted image; a message names it as `upload:ID`."""

    id: str
    media_type: str
    width: int
    height: int
    size: int


@ROUTES.post(
    "/api/uploads", "Take in an image for a message: the body is the file", status=201, raw=True, limit=MAX_UPLOAD
)
async def take_in(call: Call) -> Upload:
    data = await call.request.body()
    picture = judged(data)
    id = os.urandom(16).hex()
    await to_thread.run_sync(_keep, call.gateway.host.workspace, id, data)
    return Upload(id, picture.media_type, picture.width, picture.height, len(data))


def _keep(workspace: Path, id: str, data: bytes) -> None:
    with _folder(workspace, make=True) as folder:
        if _sweep(folder) + len(data) > MAX_WAITING:
            fix = "send the messages they are for, or wait"
            raise Refusal(413, "too_many", "too many uploads wait for a message", fix=fix)
        descriptor = os.open(id, os.O_WRONLY | os.O_CREAT | os.O_EXCL | OPEN_FLAGS, FILE_MODE, dir_fd=folder)
        try:
            write_whole(descriptor, data)
            sync_file(descriptor)
        except OSError as error:
            os.unlink(id, dir_fd=folder)
            text = f"the upload cannot be kept: {error.strerror}"
            raise Refusal(507, "no_room", text, fix="free some space") from None
        finally:
            os.close(descriptor)


def _sweep(folder: int) -> int:
    """Delete expired uploads; return the bytes of the others."""
    left, oldest = 0, time.time() - KEPT
    with os.scandir(folder) as entries:
        for entry in entries:
            try:
                facts = entry.stat(follow_symlinks=False)
                if facts.st_mtime < oldest and not entry.is_dir(follow_symlinks=False):
                    os.unlink(entry.name, dir_fd=folder)
                else:
                    left += facts.st_size
            except FileNotFoundError:
                continue  # another upload swept at the same time
    return left


async def taken(workspace: Path, message: Message) -> Message:
    """Return a message with its uploads filled in, and all images checked and typed by their bytes."""
    if not any(isinstance(part, Image) for part in message.parts):
        return message
    return await to_thread.run_sync(_taken, workspace, message)


def _taken(workspace: Path, message: Message) -> Message:
    def part_of(part: Part) -> Part:
        return _image(workspace, part.data) if isinstance(part, Image) else part

    return replace(message, parts=tuple(map(part_of, message.parts)))


def _image(workspace: Path, text: str) -> Image:
    data = _read(workspace, text.removeprefix(SCHEME)) if text.startswith(SCHEME) else _decoded(text)
    pieces = (data[at : at + PIECE] for at in range(0, len(data), PIECE))
    return Image(judged(data).media_type, b"".join(map(base64.b64encode, pieces)).decode())


def _decoded(text: str) -> bytes:
    try:
        if "=" in text[:-2]:
            raise ValueError
        size = PIECE // 3 * 4
        data = b"".join(base64.b64decode(text[at : at + size], validate=True) for at in range(0, len(text), size))
    except ValueError:  # includes binascii.Error
        fix = "POST /api/uploads gives an ID"
        raise Refusal(400, "invalid", "an image is neither base64 nor upload:ID", fix=fix) from None
    if len(data) > MAX_UPLOAD:
        raise Refusal(413, "too_large", f"an image is larger than {MAX_UPLOAD:,} bytes", fix="make it smaller")
    return data


def _read(workspace: Path, id: str) -> bytes:
    text = f"there is no upload {id[:40]!r}: it never was, or it is older than a day"
    gone = Refusal(400, "no_upload", text, fix="attach it again")
    if not _ID.fullmatch(id):
        raise gone
    try:
        with _folder(workspace, make=False) as folder:
            descriptor = os.open(id, os.O_RDONLY | os.O_NONBLOCK | OPEN_FLAGS, dir_fd=folder)
        with os.fdopen(descriptor, "rb") as file:
            return file.read(MAX_UPLOAD)
    except OSError:
        raise gone from None


@contextmanager
def _folder(workspace: Path, *, make: bool) -> Generator[int]:
    """Open the folder of the uploads without following links."""
    root = os.open(workspace, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            folder = open_by_walking(root, _FOLDER, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            if not make:
                raise
            make_private(workspace.joinpath(*_FOLDER))
            folder = open_by_walking(root, _FOLDER, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        if not make:
            raise
        raise Refusal(507, "no_room", f"uploads cannot be kept: {error.strerror}", fix="look at .lmagent") from None
    finally:
        os.close(root)
    try:
        yield folder
    finally:
        os.close(folder)
