"""Hub: the list and the bytes of files on Hugging Face, or on a mirror (`HF_ENDPOINT`).

API: https://huggingface.co/docs/hub/api. `GET /api/models/REPO/tree/main?recursive=true` lists files, in pages that a
`Link` header joins; `lfs.oid` is the SHA-256. `GET /REPO/resolve/main/PATH` redirects to the store, which is another
host and must never see the token.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated
from urllib.parse import quote, urljoin, urlsplit

from msgspec import Meta, Struct

from lmagent.core.decoding import decode_json
from lmagent.modelserver.spec import ModelServerError
from lmagent.providers.transport import Timeouts, Transport, TransportError, TransportResponse, read_all

DEFAULT_ENDPOINT = "https://huggingface.co"
MAX_PAGE = 32 << 20
MAX_PAGES = 20
MAX_REDIRECTS = 6
TIMEOUTS = Timeouts(connect=15.0, first_byte=60.0, idle=60.0)
REPO = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)

_NEXT = re.compile(r'<([^>]+)>;\s*rel="?next"?')


class HubFile(Struct, frozen=True):
    path: str  # in the repository
    size: int  # bytes
    sha256: str = ""  # of the content; "" for small files, which Git itself keeps
    git: str = ""  # Git's own hash of a small file (SHA-1 over `blob SIZE`, a zero byte and the content)

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


class _Lfs(Struct):
    oid: Annotated[str, Meta(pattern="^(sha256:)?[0-9a-fA-F]{64}$")]
    size: Annotated[int, Meta(ge=0)]


class _Row(Struct):
    """A row of the hub's list."""

    type: str
    path: str
    size: Annotated[int, Meta(ge=0)] = 0
    oid: str = ""
    lfs: _Lfs | None = None


class _Refusal(Struct):
    error: str


class Failed(ModelServerError):
    """A failure after which the same request may work later."""

    def __init__(self, message: str, *, fix: str = "try again later", retry_after: float = 0.0) -> None:
        super().__init__(message, status=502, code="hub_unreachable", fix=fix)
        self.retry_after = retry_after


class ModelHub:
    def __init__(self, transport: Transport, env: Mapping[str, str]) -> None:
        self._transport = transport
        self.endpoint = (env.get("HF_ENDPOINT") or DEFAULT_ENDPOINT).rstrip("/")
        self._token = (env.get("HF_TOKEN") or env.get("HUGGING_FACE_HUB_TOKEN") or "").strip()
        if _origin(self.endpoint) is None or re.search(r"[\s?#]", self.endpoint):
            fix = f"write HF_ENDPOINT={DEFAULT_ENDPOINT}, or unset it"
            raise ModelServerError(f"HF_ENDPOINT is {self.endpoint!r}, which is no address", status=400, fix=fix)

    async def files(self, repo: str) -> list[HubFile]:
        """Return all files of a repository."""
        url = f"{self.endpoint}/api/models/{repo}/tree/main?recursive=true"
        files: list[HubFile] = []
        for _ in range(MAX_PAGES):
            response = await self._get(url, {"Accept": "application/json"}, repo)
            try:
                files += self._listed(await read_all(response, MAX_PAGE))
            except TransportError as error:
                raise unreachable(self.endpoint, error) from error
            finally:
                await response.aclose()
            following = _NEXT.search(response.headers.get("link", ""))
            if following is None:
                break
            url = _led(url, following[1])
        return files

    async def open(self, repo: str, path: str, headers: Mapping[str, str]) -> TransportResponse:
        """Begin to read a file; the answer's status is 200, 206 or 416. Close it."""
        return await self._get(f"{self.endpoint}/{repo}/resolve/main/{quote(path)}", headers, repo)

    async def _get(self, url: str, headers: Mapping[str, str], repo: str) -> TransportResponse:
        """Follow redirects; only the hub's own host gets the token."""
        for _ in range(MAX_REDIRECTS):
            fields = {"User-Agent": "lmagent", "Accept-Encoding": "identity", **headers}
            if self._token and _origin(url) == _origin(self.endpoint):
                fields["Authorization"] = f"Bearer {self._token}"
            try:
                response = await self._transport.send("GET", url, fields, b"", TIMEOUTS)
            except TransportError as error:
                raise unreachable(url, error) from error
            if response.status in (200, 206, 416):
                return response
            if response.status not in (301, 302, 303, 307, 308):
                raise await self._refused(response, url, repo)
            await response.aclose()
            url = _led(url, response.headers.get("location", ""))
        fix = "check HF_ENDPOINT, or try again later"
        raise ModelServerError(f"{_host(self.endpoint)} redirects without end", status=502, fix=fix)

    def _listed(self, page: bytes) -> list[HubFile]:
        try:
            rows = decode_json(page, list[_Row])
        except (ValueError, RecursionError):
            fix = "check HF_ENDPOINT: it has to be a hub with Hugging Face's API"
            text = f"{_host(self.endpoint)} answered with no list of files"
            raise ModelServerError(text, status=502, fix=fix) from None
        return [
            HubFile(row.path, row.lfs.size, row.lfs.oid.removeprefix("sha256:").lower())
            if row.lfs
            else HubFile(row.path, row.size, git=row.oid.lower())
            for row in rows
            if row.type == "file"
        ]

    async def _refused(self, response: TransportResponse, url: str, repo: str) -> ModelServerError:
        """Translate a refusal into an error, and close the answer."""
        try:
            reason = decode_json(await read_all(response, 4096), _Refusal).error[:200]
            said = ": " + "".join(letter if letter.isprintable() else " " for letter in reason)
        except (TransportError, ValueError, RecursionError):
            said = ""
        finally:
            await response.aclose()
        status, code = response.status, response.headers.get("x-error-code", "")
        page = f"{self.endpoint}/{repo}"
        if code == "GatedRepo" or (status == 403 and not code):
            fix = f"agree to its terms on {page}, then set HF_TOKEN to a token of that account"
            return ModelServerError(f"{repo} is only for those who agreed to its terms", status=403, fix=fix)
        if status in (401, 404):
            fix = f"check the name on {page}; for a private one, set HF_TOKEN to a token that may read it"
            text = f"{repo} is not on {_host(self.endpoint)}, or is private{said}"
            return ModelServerError(text, status=404, code="model_not_found", fix=fix)
        text = f"{_host(url)} answered with HTTP {status}{said}"
        if status == 429 or status >= 500:
            after = response.headers.get("retry-after", "")
            wait = float(after) if re.fullmatch(r"\d{1,5}", after) else 0.0
            return Failed(text, fix=f"try again in {wait:.0f} seconds" if wait else "try again later", retry_after=wait)
        return ModelServerError(text, status=502, fix="check HF_ENDPOINT and the name")


def unreachable(url: str, error: TransportError) -> Failed:
    """Translate a failure of the connection into an error."""
    fix = "check the connection, the clock, HTTPS_PROXY, SSL_CERT_FILE and HF_ENDPOINT"
    detail = f": {error.detail}" if error.detail else ""
    return Failed(f"{_host(url)} cannot be reached, or the connection broke off ({error.kind}{detail})", fix=fix)


def _led(url: str, target: str) -> str:
    """Return the address that an answer leads to; refuse one without encryption after one with it."""
    try:
        full = urljoin(url, target)
    except ValueError:
        full = target
    origin = _origin(full)
    if origin is None or (url.startswith("https:") and origin[0] != "https"):
        text = f"{_host(url)} redirects to {full[:80]!r}, which is no address, or one without encryption"
        raise ModelServerError(text, status=502, fix="check HF_ENDPOINT")
    return full


def _origin(url: str) -> tuple[str, str, int | None] | None:
    """Return scheme, host and port; None if it is no address on the web."""
    try:
        parts = urlsplit(url)
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:  # an invalid port, or half an IPv6 address
        return None
    return (parts.scheme, parts.hostname, port) if parts.hostname and parts.scheme in ("http", "https") else None


def _host(url: str) -> str:
    return urlsplit(url).netloc.rpartition("@")[2] or url
