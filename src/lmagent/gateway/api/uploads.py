"""Uploads: images that wait for their message, and the user's files and text edits in the workspace.

Images wait in the user's data folder. They are checked by their bytes when they arrive and when a message takes them.
The guards of a file are those of the agent's `write`; its change is recorded in the user's session, for `/undo`.
"""

from __future__ import annotations

import base64
import os
import re
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from anyio import to_thread
from msgspec import Meta, Struct
from msgspec.structs import replace

from lmagent.core.errors import ToolError
from lmagent.core.messages import Image, Message, Part
from lmagent.engine.session import Session
from lmagent.engine.undo import change_for_user, user_change
from lmagent.gateway.api.files import FileQuery, beneath, judged, meant, shown
from lmagent.gateway.gateway import SURFACE
from lmagent.gateway.http.errors import Refusal
from lmagent.gateway.http.route import Call, Routes
from lmagent.policy.gate import Request, judge
from lmagent.policy.paths import located
from lmagent.store.files import make_private, read_regular, write_new
from lmagent.tools.beneath import Beneath, LoadedFile
from lmagent.tools.change import load_if_there, sha256
from lmagent.tools.sanitize import one_line
from lmagent.tools.textfile import Encoding, decode, encode
from lmagent.tools.write import LIMIT

ROUTES = Routes()

MAX_UPLOAD = 20_000_000  # bytes of an upload
MAX_WAITING = 1_000_000_000  # bytes of all waiting uploads

KEPT = 86_400.0  # seconds for which an upload waits for its message
SCHEME = "upload:"  # prefix of an image part that names an upload instead of holding its bytes

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
    await to_thread.run_sync(_keep, call.gateway.uploads, id, data)
    return Upload(id, picture.media_type, picture.width, picture.height, len(data))


def _keep(folder: Path, id: str, data: bytes) -> None:
    try:
        make_private(folder)
        if _sweep(folder) + len(data) > MAX_WAITING:
            fix = "send the messages they are for, or wait"
            raise Refusal(413, "too_many", "too many uploads wait for a message", fix=fix)
        write_new(folder / id, data)
    except OSError as error:
        with suppress(OSError):
            (folder / id).unlink()
        text = f"the upload cannot be kept: {error.strerror}"
        raise Refusal(507, "no_room", text, fix="free some space") from None


def _sweep(folder: Path) -> int:
    """Delete expired uploads; return the bytes of the others."""
    left, oldest = 0, time.time() - KEPT
    for file in folder.iterdir():
        with suppress(FileNotFoundError):  # another upload swept at the same time
            facts = file.lstat()
            if facts.st_mtime < oldest:
                file.unlink()
            else:
                left += facts.st_size
    return left


async def taken(folder: Path, message: Message) -> Message:
    """Return a message with its uploads from `folder` filled in, and all images checked and typed by their bytes."""
    if not any(isinstance(part, Image) for part in message.parts):
        return message
    return await to_thread.run_sync(_taken, folder, message)


def _taken(folder: Path, message: Message) -> Message:
    def part_of(part: Part) -> Part:
        return _image(folder, part.data) if isinstance(part, Image) else part

    return replace(message, parts=tuple(map(part_of, message.parts)))


def _image(folder: Path, text: str) -> Image:
    data = _read(folder, text.removeprefix(SCHEME)) if text.startswith(SCHEME) else _decoded(text)
    return Image(judged(data).media_type, base64.b64encode(data).decode())


def _decoded(text: str) -> bytes:
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError:  # includes binascii.Error
        fix = "POST /api/uploads gives an ID"
        raise Refusal(400, "invalid", "an image is neither base64 nor upload:ID", fix=fix) from None
    if len(data) > MAX_UPLOAD:
        raise Refusal(413, "too_large", f"an image is larger than {MAX_UPLOAD:,} bytes", fix="make it smaller")
    return data


def _read(folder: Path, id: str) -> bytes:
    try:
        if _ID.fullmatch(id):
            return read_regular(folder / id, MAX_UPLOAD)
    except OSError:
        pass
    text = f"there is no upload {id[:40]!r}: it never was, or it is older than a day"
    raise Refusal(400, "no_upload", text, fix="attach it again")


# --- files and texts of the workspace ---------------------------------------------------------------------------------


EDITED = 1_000_000  # bytes of a text that can be edited on the page
BODY = 8_000_000  # bytes of a request with an edited text: JSON may need six bytes for one


class SendQuery(FileQuery, frozen=True):
    """A file to write, over nothing (empty), `any` or the content of a SHA-256; `sure`: the user has consented."""

    path: Annotated[str, Meta(min_length=1, max_length=4096)]
    over: Annotated[str, Meta(pattern=r"^(|any|[0-9a-f]{64})\Z")] = ""
    sure: bool = False


class Edited(SendQuery, frozen=True, kw_only=True):
    """An edited text; the other fields as in `SendQuery`."""

    text: str


class Editable(Struct, frozen=True):
    """A whole text with line feeds only, to be edited; `sha256` is of the file on disk: `over` when it is saved."""

    path: str
    text: str
    sha256: str


class Saved(Struct, frozen=True):
    """The file is on disk; `changed` is False if it had this content already."""

    path: str
    sha256: str
    size: int
    changed: bool


@ROUTES.post(
    "/api/sessions/{session}/files",
    "Put a file into the workspace: the body is the file",
    status=201,
    raw=True,
    limit=LIMIT,
)
async def send_file(call: Call, query: SendQuery) -> Saved:
    return await _save(call, query, "upload", await call.request.body())


@ROUTES.post("/api/sessions/{session}/files/text", "Save an edited text", status=201, limit=BODY)
async def save_text(call: Call, body: Edited) -> Saved:
    """Write an edited text, with the encoding and line ends of its file."""
    return await _save(call, body, "edit", body.text)


@ROUTES.get("/api/files/edit", "A whole text, to edit")
def load_text(call: Call, query: FileQuery) -> Editable:
    return beneath(call.gateway.host.workspace, query.path, _editable)


def _editable(files: Beneath, path: str) -> Editable:
    data = files.load(path, EDITED + 1).data
    if len(data) > EDITED:
        raise _not_here(f"it is larger than {EDITED:,} bytes")
    text, _, _ = _text_of(data)
    return Editable(shown(files.locate(path)), text, sha256(data))


def _text_of(data: bytes) -> tuple[str, Encoding, bool]:
    """Return the text of a file with line feeds only, its encoding, and whether its lines end in CRLF."""
    decoded = decode(data)
    if decoded is None:
        raise _not_here("it is no text")
    text, encoding = decoded
    plain, crlf = text.replace("\r\n", "\n"), "\r\n" in text
    if _bytes_of(plain, encoding, crlf=crlf) != data or "\r" in plain:
        raise _not_here("its lines end in different ways, which a browser would make alike")
    return plain, encoding, crlf


def _bytes_of(text: str, encoding: Encoding, *, crlf: bool) -> bytes:
    return encode(text.replace("\n", "\r\n") if crlf else text, encoding)


def _not_here(why: str) -> Refusal:
    fix = "use an editor, or ask the agent to change it"
    return Refusal(415, "not_editable", f"the file cannot be edited here: {why}", fix=fix)


# --- writing ----------------------------------------------------------------------------------------------------


async def _save(call: Call, wanted: SendQuery, what: Literal["upload", "edit"], content: bytes | str) -> Saved:
    gateway = call.gateway
    workspace = gateway.host.workspace
    known = await gateway.runner.open(call.path["session"])
    path = await to_thread.run_sync(_allowed, workspace, known.session, wanted)
    change = user_change(known.session, what, path, SURFACE)

    async def write() -> Saved:
        return await to_thread.run_sync(beneath, workspace, path, partial(_write, wanted, content))

    try:
        return await change_for_user(known.session, change, f"{what} {one_line(shown(path), 300)}", write)
    except ToolError as trouble:  # the old content cannot be kept for undo
        raise Refusal(507, "no_room", trouble.message, fix="free some space") from None


def _allowed(workspace: Path, session: Session, wanted: SendQuery) -> str:
    """Return the path on disk, if the rules let the user write there."""
    if wanted.path.endswith("/"):
        raise Refusal(400, "a_folder", "the path names a folder", fix="give the path of a file")
    path = wanted.path
    try:
        targets = located(str(workspace), (f"./{path}",))
        if not os.path.lexists(workspace / path) and os.path.lexists(workspace / meant(path)):
            path = meant(path)
            targets = located(str(workspace), (f"./{path}",))
    except ToolError as error:
        raise Refusal(400, "invalid", error.message) from None
    name, *elsewhere = targets
    if elsewhere:
        text = f"{shown(name)} leads through a symbolic link to {shown(elsewhere[0])}"
        raise Refusal(403, "link", text, fix="name the file that the link leads to")
    for effect in ("write", "read"):  # the default rules on secrets are about reading
        verdict = judge(Request(effect, effect, targets), "auto", session.wiring.rules)
        if verdict.decision == "deny":
            raise Refusal(403, "denied", f"{shown(name)} is not written: {verdict.reason}", fix="change the rule")
        if verdict.decision == "ask" and not wanted.sure:
            text = f"{shown(name)} needs your consent: {verdict.reason}"
            raise Refusal(409, "confirm", text, fix="save it again with sure=true")
    return path


def _write(wanted: SendQuery, content: bytes | str, files: Beneath, path: str) -> Saved:
    """Write a file that has not changed since the user saw it."""
    old = load_if_there(files, path, LIMIT)
    name, now = shown(files.locate(path)), "" if old is None else sha256(old.data)
    data = content if isinstance(content, bytes) else _encoded(content, old)
    mark = sha256(data)
    if now == mark:
        return Saved(name, mark, len(data), False)
    if wanted.over != "any" and wanted.over != now:
        raise _clash(name, wanted.over, old)
    try:
        files.write_atomic(path, data, over=None if old is None else old.stamp)
    except ToolError as error:
        if error.data.get("code") == "stale":
            raise _clash(name, wanted.over, old) from None
        raise
    return Saved(name, mark, len(data), True)


def _encoded(text: str, old: LoadedFile | None) -> bytes:
    text = text.replace("\r\n", "\n")
    try:
        if old is None:
            return text.encode()
        _, encoding, crlf = _text_of(old.data)
        return _bytes_of(text, encoding, crlf=crlf)
    except UnicodeEncodeError:
        raise Refusal(400, "invalid", "the text holds half a character") from None
    except ToolError as error:
        raise Refusal(400, "encoding", error.message) from None


def _clash(name: str, over: str, old: LoadedFile | None) -> Refusal:
    if old is None:
        return Refusal(409, "gone", f"{name} was deleted meanwhile", fix="save it as a new file with over=any")
    if not over:
        return Refusal(409, "exists", f"there is a file {name} already", fix="choose another name, or replace it")
    text = f"{name} was changed on the disk since you opened it"
    return Refusal(409, "changed", text, fix="read it again, or overwrite it with over=any")
