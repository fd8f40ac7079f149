"""Static: the page and its modules, a sixth smaller in transfer, from the package. No other files can be requested."""

from __future__ import annotations

import gzip
import hashlib
import re
from base64 import b64encode
from functools import lru_cache
from pathlib import Path

from msgspec import Struct
from starlette.responses import Response

from lmagent.gateway.http.errors import Refusal
from lmagent.gateway.http.route import Call, Routes

ROUTES = Routes()

WEB = Path(__file__).parents[1] / "web"

VENDOR = WEB / "vendor"  # third-party files, sent unchanged, as their licences require

# Content types of the served files by suffix, as in the WHATWG MIME Sniffing standard.
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".json": "application/json",
    ".webmanifest": "application/manifest+json",
    ".woff2": "font/woff2",
    ".txt": "text/plain; charset=utf-8",
}

DRAWING = ("vendor/mermaid.js", "text/drawing.js")  # scripts of the frame that draws a diagram
SMALL = 1000  # bytes below which compressing gains nothing

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*")
_GZIP = re.compile(r"\bgzip\b(?!;q=0(?:\.0*)?(?:,|$))")  # RFC 9110, section 12.5.3


class File(Struct, frozen=True):
    """A file of the page; `packed` is its gzip form, empty if not smaller."""

    media: str
    etag: str
    content: bytes
    packed: bytes


def find(name: str) -> File:
    """Return a file of the page."""
    media = TYPES.get(Path(name).suffix)
    path = WEB / name
    try:
        if media is None or not _NAME.fullmatch(name) or not path.is_file():
            raise FileNotFoundError(name)
        stat = path.stat()
        return _read(path, media, stat.st_mtime_ns, stat.st_size)
    except (OSError, ValueError):
        raise Refusal(404, "not_found", f"the page has no file {name[:200]!r}") from None


@lru_cache(maxsize=256)
def _read(path: Path, media: str, changed: int, size: int) -> File:
    """Read a file; the cache holds it until it changes."""
    content = path.read_bytes()
    if path.suffix == ".js" and VENDOR not in path.parents:
        content = compact(content.decode()).encode()
    packed = gzip.compress(content, 9, mtime=0) if len(content) > SMALL and not media.startswith("image/p") else b""
    etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    return File(media, etag, content, packed if len(packed) < len(content) else b"")


def answer(call: Call, name: str) -> Response:
    """Return the file, or 304. The browser asks each time, so that all files of an update arrive together."""
    return _answered(call, find(name))


def _answered(call: Call, file: File) -> Response:
    fields = {"etag": file.etag, "cache-control": "no-cache", "vary": "Accept-Encoding"}
    if file.etag in call.request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=fields)
    content = file.content
    if file.packed and _GZIP.search(call.request.headers.get("accept-encoding", "").lower().replace(" ", "")):
        content = file.packed
        fields["content-encoding"] = "gzip"
    return Response(content, media_type=file.media, headers=fields)


@ROUTES.get("/", "The page", media="text/html", is_open=True, place="gateway")
async def _page(call: Call) -> Response:
    return answer(call, "index.html")


@ROUTES.get("/static/{path:path}", "A file of the page", media="*/*", is_open=True, place="gateway")
def _file(call: Call) -> Response:
    name = call.path["path"]
    found = answer(call, name)  # compressing a large file takes its time
    if name == "worker.js":
        found.headers["service-worker-allowed"] = "/"  # the worker caches the whole page, not only its own folder
    return found


@ROUTES.get("/diagram", "The frame that draws a diagram", media="text/html", is_open=True, place="gateway")
def _diagram(call: Call) -> Response:
    """Return the frame that draws a diagram: its scripts run in it, but cannot reach the page or the gateway.

    It has no origin, so it cannot load files from here; its scripts are inline, and allowed by their hashes.
    """
    page, hashes = _drawing()
    found = _answered(call, page)
    rules = ("sandbox allow-scripts", "default-src 'none'", f"script-src {hashes}", "style-src 'unsafe-inline'")
    found.headers["content-security-policy"] = "; ".join((*rules, "img-src data:", "frame-ancestors 'self'"))
    return found


@lru_cache(maxsize=1)
def _drawing() -> tuple[File, str]:
    """Return the frame, and the hashes of its scripts for the content security policy."""
    scripts = [find(name).content.decode().replace("</script", "<\\/script") for name in DRAWING]
    sums = [b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    inside = "".join(f"<script>{script}</script>" for script in scripts)
    page = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Diagram</title><body>{inside}'.encode()
    file = File(TYPES[".html"], f'"{hashlib.sha256(page).hexdigest()[:32]}"', page, gzip.compress(page, 9, mtime=0))
    return file, " ".join(f"'sha256-{sum}'" for sum in sums)


@ROUTES.get("/favicon.ico", "The page's icon", media="image/svg+xml", is_open=True, place="gateway")
async def _icon(call: Call) -> Response:
    return answer(call, "icon.svg")


# --- compact modules --------------------------------------------------------------------------------------------------

_TOKEN = re.compile(
    r"""(?P<space>(?:\s|//[^\n]*|/\*.*?\*/)+) | (?P<string>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*') | [\w$#]+ | .""",
    re.DOTALL | re.VERBOSE,
)
_PATTERN = re.compile(r"/(?![/*])(?:\\.|\[(?:\\.|[^\]\\])*\]|[^/\\\[\n])+/\w*")  # A JavaScript regular expression

# The text of a template up to its end, or up to the next value.
_TEXT = re.compile(r"((?:\\.|\$(?!\{)|[^\\`$])*)(`|\$\{)", re.DOTALL)

# Tokens after which a slash begins a regular expression and is not a division.
_BEFORE_PATTERN = frozenset("(,=:[!&|?{};+-*%<>~^") | {"", "return", "typeof", "case", "in", "of", "await"}

_OPEN = ("", *"{([,;")  # after these a line break means nothing
_END = re.compile(r"</[a-z0-9]+>")
_INDENT = re.compile(r"\n[ \t]+")
_EDGE = re.compile(r"\n(?=<)|(?<=>)\n$|^\n$")  # line breaks at the edges of texts, not between attributes


def compact(source: str) -> str:
    """Return the module without comments, indentation and needless spaces, line breaks and last semicolons.

    No block of it may end with an empty statement.
    """
    sent: list[str] = []
    holes: list[tuple[int, str]] = []  # open template values: open braces within, and the template's tag
    braces, before, place = 0, "", 0

    def text(place: int, tag: str) -> int:
        """Take the text of a template and return where it ends."""
        nonlocal braces, before
        found = _TEXT.match(source, place)
        if found is None:
            raise ValueError(f"a template does not end: {source[place : place + 80]!r}")
        sent.append((_markup(found[1]) if tag == "html" else found[1]) + found[2])
        before = found[2][-1]
        if before == "{":
            holes.append((braces, tag))
            braces = 0
        return found.end()

    while place < len(source):
        found = _PATTERN.match(source, place) if before in _BEFORE_PATTERN else None
        found = found or _TOKEN.match(source, place)
        if found is None:
            break  # not reached: a token is at least one character
        token, place = found[0], found.end()
        if found.lastgroup == "space":
            ends = "\n" in token and before[-1:] not in _OPEN
            if between := "\n" if ends else " " * _needs_space(before[-1:], source[place : place + 1]):
                sent.append(between)
            continue
        if token == "}" and sent and sent[-1] == ";":
            sent.pop()
        sent.append("let" if token == "const" else token)  # the type checker has seen that nothing sets it again
        if token == "`":
            place = text(place, before)
        elif token == "}" and not braces and holes:
            braces, tag = holes.pop()
            place = text(place, tag)
        else:
            braces += (token == "{") - (token == "}")
            before = token if found.re is _TOKEN else "/x"
    return "".join(sent).lstrip("\n")


def _markup(text: str) -> str:
    """Return the text of an `html` template as htm reads it, without indentation and names in end tags."""
    return _EDGE.sub("", _END.sub("</>", _INDENT.sub("\n", text))).replace(" />", "/>")


def _needs_space(before: str, after: str) -> bool:
    """Tell whether two tokens would merge without a space between them."""
    return (_is_word(before) and _is_word(after)) or (before == after and before in ("+", "-"))


def _is_word(letter: str) -> bool:
    return letter.isalnum() or letter in ("_", "$", "#")
