"""Files of the workspace, without links out of it and lmagent's own files.

Names that are not UTF-8 cannot be in JSON: their bytes are shown as `\\xe9`, and such a path means the file with those
bytes, unless a file really has the text as its name.
"""

from __future__ import annotations

import codecs
import os
import re
import stat
import time
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, BinaryIO, Literal, TypeVar
from urllib.parse import quote

from msgspec import Meta, Struct
from starlette.responses import Response, StreamingResponse

from lmagent.core.errors import ToolError
from lmagent.gateway.http.errors import Refusal
from lmagent.gateway.http.route import Call, Routes
from lmagent.tools.beneath import Beneath, Entry
from lmagent.tools.paths import is_below, is_internal
from lmagent.tools.pictures import MAX_PIXELS, Picture, picture_of
from lmagent.tools.textfile import SNIFF, Encoding, is_binary, sniff
from lmagent.tools.walk import Walk
from lmagent.tools.write import LIMIT

ROUTES = Routes()
T = TypeVar("T")

MOST = 2000  # entries of a folder that are listed
PIECE = 1_000_000  # most bytes of a text per answer
FARTHEST = 2**53  # largest offset: the last integer that all JSON readers read exactly (RFC 8259, section 6)
HEAD = 262_144  # bytes that decide a file's type; a JPEG's size may come after a thumbnail
BLOCK = 262_144  # bytes per read while a file is sent

# Headers that make untrusted content safe to serve: it runs in no origin.
SANDBOX = {
    "Content-Security-Policy": "default-src 'none'; sandbox",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "private, no-cache",
}

# Policy for an HTML file of the workspace that the page displays.
PREVIEW = "; ".join(
    ("sandbox", "default-src 'none'", "style-src 'unsafe-inline'", "img-src data:", "frame-ancestors 'self'")
)

_STATUSES = {
    "missing": (404, "not_found"),
    "path": (403, "outside"),
    "protected": (403, "protected"),
    "permission": (403, "unreadable"),
    "directory": (400, "a_folder"),
    "kind": (400, "no_file"),
    "disk": (507, "no_room"),
}

Kind = Literal["file", "folder", "link", "other"]


class FolderQuery(Struct, frozen=True):
    """A folder: relative to the workspace, empty for the workspace itself."""

    path: str = ""


class FileQuery(Struct, frozen=True):
    """A file: relative to the workspace."""

    path: Annotated[str, Meta(min_length=1)]


class TextQuery(FileQuery, frozen=True):
    """A part of a file, in bytes."""

    offset: Annotated[int, Meta(ge=0, le=FARTHEST)] = 0
    limit: Annotated[int, Meta(ge=4, le=PIECE)] = 200_000


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
    """A folder: folders first, then files; `largest` is the most bytes that a file sent into it may have."""

    path: str
    entries: tuple[FileEntry, ...]
    more: bool
    largest: int = LIMIT


class TextPiece(Struct, frozen=True):
    """A part of a file from `offset` to `next`, in bytes; `size` is of the whole file."""

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


# --- paths ------------------------------------------------------------------------------------------------------------


def shown(name: str) -> str:
    """Return a name or path of the disk in a form for JSON."""
    text = re.sub("[\udc80-\udcff]", lambda found: f"\\x{ord(found[0]) - 0xDC00:02x}", name)
    return text.encode("utf-8", "replace").decode()


def meant(path: str) -> str:
    """Return the path on disk of a shown path."""
    return re.sub(r"\\x([89a-f][0-9a-f])", lambda found: chr(0xDC00 + int(found[1], 16)), path)


def beneath(workspace: Path, path: str, act: Callable[[Beneath, str], T]) -> T:
    """Run `act` on the open workspace and a path in it, as shown and relative."""
    if path.startswith("/"):
        raise Refusal(403, "outside", "the path is not relative to the workspace", fix="GET /api/files lists it")
    named = f"./{path}"  # the name may begin with ~
    try:
        with Beneath(workspace) as files:
            try:
                return act(files, named)
            except ToolError as error:
                other = meant(named)
                if error.data.get("code") != "missing" or other == named:
                    raise
                return act(files, other)
    except ToolError as error:
        status, code = _STATUSES.get(str(error.data.get("code")), (400, "unreadable"))
        fix = "GET /api/files lists what there is"
        raise Refusal(status, code, error.message.removeprefix("./"), fix=fix) from None


def _opened(files: Beneath, path: str) -> BinaryIO:
    return os.fdopen(files.open_read(path), "rb")


# --- folders ----------------------------------------------------------------------------------------------------------


@ROUTES.get("/api/files", "A folder of the workspace")
def list_files(call: Call, query: FolderQuery) -> Listing:
    return beneath(call.gateway.host.workspace, query.path, _list)


def _list(files: Beneath, path: str) -> Listing:
    entries = list(_entries(files, path))
    entries.sort(key=lambda entry: (entry.kind != "dir", _name(entry).casefold(), entry.path))
    here = files.locate(path)
    listed = tuple(_file_entry(files, entry) for entry in entries[:MOST])
    return Listing("" if here == "." else shown(here), listed, len(entries) > MOST)


def _entries(files: Beneath, folder: str, *, sizes: bool = False) -> Iterator[Entry]:
    """Yield the entries of a folder that are not internal files of git or lmagent."""
    for entry in files.listdir(folder, sizes=sizes):
        if not is_internal(_name(entry)) and not any(is_below(entry.path.split("/"), place) for place in files.own):
            yield entry


def _name(entry: Entry) -> str:
    return entry.path.rpartition("/")[2]


def _file_entry(files: Beneath, entry: Entry) -> FileEntry:
    kind: Kind = "folder" if entry.kind == "dir" else entry.kind
    name = shown(_name(entry))
    if entry.kind not in ("file", "dir"):
        return FileEntry(name, kind)
    try:
        facts = files.stat(f"./{entry.path}")
    except ToolError:  # deleted meanwhile
        return FileEntry(name, kind)
    return FileEntry(name, kind, facts.st_size if entry.kind == "file" else 0, facts.st_mtime)


# --- one file ---------------------------------------------------------------------------------------------------------


@ROUTES.get("/api/files/text", "A part of a file as text")
def show_text(call: Call, query: TextQuery) -> TextPiece:
    return beneath(call.gateway.host.workspace, query.path, partial(_text, query.offset, query.limit))


def _text(offset: int, limit: int, files: Beneath, path: str) -> TextPiece:
    with _opened(files, path) as file:
        size, head = os.fstat(file.fileno()).st_size, file.read(HEAD)
        name = shown(files.locate(path))
        if is_binary(head[:SNIFF]):
            kind = "image" if image_of(head) is not None else "binary"
            return TextPiece(name, "", 0, 0, size, False, True, kind)
        data = os.pread(file.fileno(), limit, offset)
    text, taken = _decoded(data, sniff(head[:SNIFF], whole=size <= SNIFF), offset, last=offset + len(data) >= size)
    after = offset + taken
    return TextPiece(name, text, offset, after, size, after < size, False, "text")


def _decoded(data: bytes, encoding: Encoding, offset: int, *, last: bool) -> tuple[str, int]:
    """Return the text and the bytes that it took: a partial character at the end is left for the next part."""
    mark = encoding.mark if offset == 0 else b""
    decoder = codecs.getincrementaldecoder(encoding.codec)("replace")
    text = decoder.decode(data[len(mark) :], last)
    return text.encode("utf-8", "replace").decode(), len(data) - len(decoder.getstate()[0])


@ROUTES.get("/api/files/raw", "A file as it is", media="*/*")
def show_raw(call: Call, query: FileQuery) -> Response:
    """Send a file: images and text inline, all others as a download."""
    file, head, name = beneath(call.gateway.host.workspace, query.path, _begun)
    kind, disposition = _served_as(head)
    ascii_name = "".join(char if char.isascii() and char.isprintable() and char not in '"\\' else "_" for char in name)
    told = f"{disposition}; filename=\"{ascii_name}\"; filename*=UTF-8''{quote(name, safe='')}"
    return StreamingResponse(_blocks(file, head), media_type=kind, headers={**SANDBOX, "Content-Disposition": told})


def _begun(files: Beneath, path: str) -> tuple[BinaryIO, bytes, str]:
    """Return the open file, its first bytes and its name."""
    file = _opened(files, path)
    return file, file.read(HEAD), shown(files.locate(path)).rpartition("/")[2]


def _blocks(file: BinaryIO, head: bytes) -> Iterator[bytes]:
    with file:
        yield head
        while block := file.read(BLOCK):
            yield block


@ROUTES.get("/api/files/page", "An HTML file as a page, in a sandbox", media="text/html")
def show_page(call: Call, query: FileQuery) -> Response:
    """Show an HTML file in a sandbox: its scripts do not run, and it loads nothing."""
    piece = beneath(call.gateway.host.workspace, query.path, partial(_text, 0, PIECE))
    if piece.binary:
        raise Refusal(415, "no_text", f"{piece.path} is no text", fix="download it")
    return Response(piece.text, media_type="text/html", headers={**SANDBOX, "Content-Security-Policy": PREVIEW})


def _served_as(head: bytes) -> tuple[str, str]:
    if (image := image_of(head)) is not None:
        return image.media_type, "inline"
    if not is_binary(head[:SNIFF]):
        codec = sniff(head[:SNIFF], whole=len(head) < SNIFF).codec
        return f"text/plain; charset={codec.removesuffix('-le').removesuffix('-be')}", "inline"
    return "application/octet-stream", "attachment"


def image_of(data: bytes) -> Picture | None:
    """Return the image that begins with these bytes; None if it is of another format or too large."""
    found = picture_of(data)
    return found if found is not None and not found.is_too_large else None


def judged(data: bytes) -> Picture:
    """Return the image that these bytes are."""
    found = picture_of(data)
    if found is None:
        raise Refusal(415, "no_image", "this is no PNG, JPEG, GIF or WebP image", fix="save it as one of these")
    if found.is_too_large:
        size = f"{found.width:,} x {found.height:,}"
        text = f"the image has {size} pixels, more than {MAX_PIXELS // 1_000_000} million"
        raise Refusal(413, "too_many_pixels", text, fix="make it smaller")
    return found


# --- finding ----------------------------------------------------------------------------------------------------------


@ROUTES.get("/api/find", "Files by a part of their name")
def find_files(call: Call, query: FindQuery) -> FoundFiles:
    return FoundFiles(beneath(call.gateway.host.workspace, "", partial(_find, query.q, query.limit)))


def _find(wanted: str, limit: int, files: Beneath, _: str) -> tuple[str, ...]:
    words, deadline = meant(wanted).strip().lstrip("@").casefold(), time.monotonic() + 1.0
    ranked: list[tuple[int, int, str]] = []
    for entry in Walk(files):
        if time.monotonic() > deadline:
            break
        if entry.kind == "file" and (rank := _rank(words, entry.path.casefold())) is not None:
            ranked.append((rank, len(entry.path), entry.path))
    return tuple(shown(path) for _, _, path in sorted(ranked)[:limit])


def _rank(words: str, path: str) -> int | None:
    """Return how well a path matches, 0 for the best; None if it does not."""
    name = path.rpartition("/")[2]
    letters = iter(path)
    fits = (name.startswith(words), words in name, words in path, all(letter in letters for letter in words))
    return fits.index(True) if any(fits) else None


# --- a folder as a ZIP file, streamed without a copy in memory or on disk ---------------------------------------------

MOST_BYTES = 2_000_000_000  # most bytes of files in a ZIP file
MOST_FILES = 20_000  # most files in a ZIP file
DEEPEST = 200  # most levels of folders
LEFT_OUT = "LEFT-OUT.txt"  # the entry that names the files that could not be read


@ROUTES.get("/api/files/zip/check", "Whether a folder can be sent as a ZIP file")
def check_folder(call: Call, query: FolderQuery) -> dict[str, int]:
    """Check that a folder can be sent: a browser shows no reason when a download fails."""
    _, paths = beneath(call.gateway.host.workspace, query.path, _listed)
    return {"files": len(paths)}


@ROUTES.get("/api/files/zip", "A folder as a ZIP file", media="application/zip")
def send_folder(call: Call, query: FolderQuery) -> Response:
    """Send a folder as a ZIP file, without links and the internal files of git and lmagent."""
    workspace: Path = call.gateway.host.workspace
    name, paths = beneath(workspace, query.path, _listed)
    name = f"{name.rpartition('/')[2] or workspace.name or 'workspace'}.zip"
    headers = {**SANDBOX, "Content-Disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}"}
    return StreamingResponse(_zipped(workspace, paths), media_type="application/zip", headers=headers)


def _listed(files: Beneath, path: str) -> tuple[str, list[tuple[str, str]]]:
    """Return the folder's displayed name, and its files: the path on disk and the name in the ZIP file."""
    here, left = files.locate(path), [(path, 0)]
    found = list[tuple[str, str]]()
    size = 0
    while left:
        folder, depth = left.pop()
        for entry in _entries(files, folder, sizes=True):
            if entry.kind == "dir":
                left.append((f"./{entry.path}", depth + 1))
            elif entry.kind == "file":
                inner = entry.path if here == "." else entry.path.removeprefix(f"{here}/")
                found.append((f"./{entry.path}", shown(inner)))
                size += entry.size
            if size > MOST_BYTES or len(found) > MOST_FILES or depth > DEEPEST:
                text = f"{shown(here)} holds more than {MOST_BYTES // 1_000_000:,} MB or {MOST_FILES:,} files"
                raise Refusal(413, "too_large", text, fix="download the folders in it one by one")
    return "" if here == "." else shown(here), sorted(found)


class _Sink(list[bytes]):
    """Keeps the ZIP writer's output until it is taken."""

    def write(self, data: bytes) -> int:
        self.append(bytes(data))
        return len(data)

    def flush(self) -> None: ...

    def taken(self) -> bytes:
        data = b"".join(self)
        self.clear()
        return data


def _zipped(workspace: Path, paths: list[tuple[str, str]]) -> Iterator[bytes]:
    sink = _Sink()
    left = list[str]()
    with Beneath(workspace) as files, zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as packed:  # type: ignore[arg-type]
        for path, name in paths:
            try:
                file = _opened(files, path)
            except ToolError as error:  # deleted meanwhile, or not readable
                left.append(f"{name}: {error.message}")
                continue
            with file, packed.open(_zip_entry(name, file), "w", force_zip64=True) as entry:
                while block := file.read(BLOCK):
                    entry.write(block)
                    yield sink.taken()
        if left:
            packed.writestr(LEFT_OUT, "\n".join(left) + "\n")
    yield sink.taken()


def _zip_entry(name: str, file: BinaryIO) -> zipfile.ZipInfo:
    facts = os.fstat(file.fileno())
    when = max(time.localtime(facts.st_mtime)[:6], (1980, 1, 1, 0, 0, 0))
    entry = zipfile.ZipInfo(name, min(when, (2107, 12, 31, 23, 59, 58)))
    entry.external_attr = (stat.S_IFREG | stat.S_IMODE(facts.st_mode)) << 16
    entry.compress_type = zipfile.ZIP_DEFLATED
    return entry
