"""Files of the workspace: folders, text in parts, downloads, safe inline display, and search by name."""

from __future__ import annotations

import codecs
import os
import time
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Annotated, Literal
from urllib.parse import quote

from anyio import to_thread
from msgspec import Meta, Struct
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from lmagent.core.errors import ToolError
from lmagent.gateway.api.paths import beneath, meant, read_at, shown
from lmagent.gateway.api.pictures import SANDBOX, image_of
from lmagent.gateway.http.errors import Refusal
from lmagent.gateway.http.route import Call, Route
from lmagent.tools.beneath import Beneath, Entry
from lmagent.tools.paths import is_below, is_internal
from lmagent.tools.textfile import SNIFF, Encoding, kind_of_binary, sniff
from lmagent.tools.walk import Walk
from lmagent.tools.write import LIMIT

MOST = 2000
"""Entries of a folder that are listed."""

PIECE = 1_000_000
"""Most bytes of a text per answer."""

FARTHEST = 2**53
"""Largest offset: the last integer that all JSON readers read exactly (RFC 8259, section 6)."""

HEAD = 262_144
"""Bytes that decide a file's type; a JPEG's size may come after a thumbnail."""

BLOCK = 262_144
"""Bytes per read while a file is sent."""

PREVIEW = "; ".join(
    ("sandbox", "default-src 'none'", "style-src 'unsafe-inline'", "img-src data:", "frame-ancestors 'self'")
)
"""Policy for an HTML file of the workspace that the page displays."""

LOOKED = 1.0
"""Seconds for a search by name."""

Kind = Literal["file", "folder", "link", "other"]


class FilesQuery(Struct, frozen=True):
    """A folder: relative to the workspace, empty for the workspace itself."""

    path: str = ""


class TextQuery(Struct, frozen=True):
    """A part of a file, in bytes."""

    path: Annotated[str, Meta(min_length=1)]
    offset: Annotated[int, Meta(ge=0, le=FARTHEST)] = 0
    limit: Annotated[int, Meta(ge=1, le=PIECE)] = 200_000


class RawQuery(Struct, frozen=True):
    path: Annotated[str, Meta(min_length=1)]


class FindQuery(Struct, frozen=True):
    """A part of a name, and how many files to find."""

    q: str = ""
    limit: Annotated[int, Meta(ge=1, le=200)] = 20


class FileEntry(Struct, frozen=True):
    """A name in a folder; `size` in bytes, `modified` in Unix seconds, both 0 if unknown."""

    name: str
    kind: Kind
    size: int = 0
    modified: float = 0.0


class Listing(Struct, frozen=True):
    """A folder: folders first, then files; `more` if there are too many entries to list.

    `largest` is the most bytes that a file sent into the workspace may have.
    """

    path: str
    entries: tuple[FileEntry, ...]
    more: bool
    largest: int = LIMIT


class TextPiece(Struct, frozen=True):
    """A part of a file.

    Attributes:
        text: from `offset` on; empty for a binary file.
        offset: in bytes.
        next: where the next part begins, in bytes.
        size: of the whole file, in bytes.
        more: the file continues after `next`.
        kind: how it can be displayed.
    """

    path: str
    text: str
    offset: int
    next: int
    size: int
    more: bool
    binary: bool
    kind: Literal["text", "image", "binary"]


class FoundFiles(Struct, frozen=True):
    """Matching paths, the best first."""

    paths: tuple[str, ...]


# --- listing --------------------------------------------------------------------------------------------------------


async def list_files(call: Call) -> Listing:
    return await beneath(call.gateway.host.workspace, call.query.path, _list)


def _list(files: Beneath, path: str) -> Listing:
    own = files.own
    entries = [
        entry
        for entry in files.listdir(path)
        if not is_internal(_name(entry)) and not any(is_below(entry.path.split("/"), place) for place in own)
    ]
    entries.sort(key=lambda entry: (entry.kind != "dir", _name(entry).casefold(), entry.path))
    here = files.locate(path)
    listed = tuple(_entry(files, entry) for entry in entries[:MOST])
    return Listing("" if here == "." else shown(here), listed, len(entries) > MOST)


def _entry(files: Beneath, entry: Entry) -> FileEntry:
    kind: Kind = "folder" if entry.kind == "dir" else entry.kind
    name = shown(_name(entry))
    if entry.kind not in ("file", "dir"):
        return FileEntry(name, kind)
    try:
        facts = files.stat(f"./{entry.path}")
    except ToolError:  # deleted meanwhile
        return FileEntry(name, kind)
    return FileEntry(name, kind, facts.st_size if entry.kind == "file" else 0, facts.st_mtime)


def _name(entry: Entry) -> str:
    return entry.path.rpartition("/")[2]


# --- one file -------------------------------------------------------------------------------------------------------


async def show_text(call: Call) -> TextPiece:
    query: TextQuery = call.query
    return await beneath(call.gateway.host.workspace, query.path, partial(_text, query.offset, query.limit))


def _text(offset: int, limit: int, files: Beneath, path: str) -> TextPiece:
    descriptor = files.open_read(path)
    try:
        size, head = os.fstat(descriptor).st_size, read_at(descriptor, 0, HEAD)
        name = shown(files.locate(path))
        if kind_of_binary(head[:SNIFF]) is not None:
            kind = "image" if image_of(head) is not None else "binary"
            return TextPiece(name, "", 0, 0, size, False, True, kind)
        data = read_at(descriptor, offset, limit)
    finally:
        os.close(descriptor)
    text, taken = _decoded(data, sniff(head[:SNIFF], whole=size <= SNIFF), offset, last=offset + len(data) >= size)
    after = offset + taken
    return TextPiece(name, text, offset, after, size, after < size, False, "text")


def _decoded(data: bytes, encoding: Encoding, offset: int, *, last: bool) -> tuple[str, int]:
    """Return the text and the bytes that it took: a partial character at the end is left for the next part."""
    mark = encoding.mark if offset == 0 else b""
    decoder = codecs.getincrementaldecoder(encoding.codec)("replace")
    text = decoder.decode(data[len(mark) :], last)
    left, _ = decoder.getstate()
    if len(left) >= len(data) - len(mark):  # smaller than a character: without half of it, reading would not end
        text, left = data[len(mark) :].decode(encoding.codec, "replace"), b""
    return text.encode("utf-8", "replace").decode(), len(data) - len(left)


async def show_raw(call: Call) -> Response:
    """Send a file: images and text inline, all others as a download."""
    descriptor, head, name = await beneath(call.gateway.host.workspace, call.query.path, _opened)
    kind, disposition = _served_as(head)
    ascii_name = "".join(char if char.isascii() and char.isprintable() and char not in '"\\' else "_" for char in name)
    told = f"{disposition}; filename=\"{ascii_name}\"; filename*=UTF-8''{quote(name, safe='')}"
    return _Sent(descriptor, kind, {**SANDBOX, "Content-Disposition": told})


async def show_page(call: Call) -> Response:
    """Show an HTML file in a sandbox: its scripts do not run, and it loads nothing."""
    piece = await beneath(call.gateway.host.workspace, call.query.path, partial(_text, 0, PIECE))
    if piece.binary:
        raise Refusal(415, "no_text", f"{piece.path} is no text", fix="download it")
    return Response(piece.text, media_type="text/html", headers={**SANDBOX, "Content-Security-Policy": PREVIEW})


def _opened(files: Beneath, path: str) -> tuple[int, bytes, str]:
    descriptor = files.open_read(path)
    try:
        return descriptor, read_at(descriptor, 0, HEAD), shown(files.locate(path)).rpartition("/")[2]
    except BaseException:
        os.close(descriptor)
        raise


def _served_as(head: bytes) -> tuple[str, str]:
    if (image := image_of(head)) is not None:
        return image.media_type, "inline"
    if kind_of_binary(head[:SNIFF]) is None:
        codec = sniff(head[:SNIFF], whole=len(head) < SNIFF).codec
        return f"text/plain; charset={codec.removesuffix('-le').removesuffix('-be')}", "inline"
    return "application/octet-stream", "attachment"


class _Sent(StreamingResponse):
    """Sends an open file block by block, and closes it in any case."""

    def __init__(self, descriptor: int, media_type: str, headers: dict[str, str]) -> None:
        self._descriptor = descriptor
        super().__init__(self._blocks(), media_type=media_type, headers=headers)

    async def _blocks(self) -> AsyncIterator[bytes]:
        at = 0
        while block := await to_thread.run_sync(os.pread, self._descriptor, BLOCK, at):
            at += len(block)
            yield block

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            os.close(self._descriptor)


# --- finding --------------------------------------------------------------------------------------------------------


async def find_files(call: Call) -> FoundFiles:
    query: FindQuery = call.query
    return FoundFiles(await beneath(call.gateway.host.workspace, "", partial(_find, query.q, query.limit)))


def _find(wanted: str, limit: int, files: Beneath, _: str) -> tuple[str, ...]:
    words = meant(wanted).strip().lstrip("@").casefold()
    ranked = sorted(_ranked(words, files))
    return tuple(shown(path) for _, _, path in ranked[:limit])


def _ranked(words: str, files: Beneath) -> Iterator[tuple[int, int, str]]:
    """Yield matching paths with their rank (0 is best) and length."""
    deadline = time.monotonic() + LOOKED
    for entry in Walk(files):
        if time.monotonic() > deadline:
            return
        if entry.kind != "file":
            continue
        if (rank := _rank(words, entry.path.casefold())) is not None:
            yield rank, len(entry.path), entry.path


def _rank(words: str, path: str) -> int | None:
    name = path.rpartition("/")[2]
    if name.startswith(words):
        return 0
    if words in name:
        return 1
    if words in path:
        return 2
    letters = iter(path)
    return 3 if all(letter in letters for letter in words) else None


ROUTES = (
    Route("GET", "/api/files", list_files, "A folder of the workspace", FilesQuery, answer=Listing, errors=(404,)),
    Route("GET", "/api/files/text", show_text, "A part of a file as text", TextQuery, answer=TextPiece, errors=(404,)),
    Route("GET", "/api/files/raw", show_raw, "A file as it is", RawQuery, media="*/*", errors=(404,)),
    Route(
        "GET",
        "/api/files/page",
        show_page,
        "An HTML file as a page, in a sandbox",
        RawQuery,
        media="text/html",
        errors=(404, 415),
    ),
    Route("GET", "/api/find", find_files, "Files by a part of their name", FindQuery, answer=FoundFiles),
)
