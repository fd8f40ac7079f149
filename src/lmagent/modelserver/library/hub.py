"""Hub: the list and the bytes of files on Hugging Face, or on a mirror (`HF_ENDPOINT`).

API: https://huggingface.co/docs/hub/api. `GET /api/models/REPO/tree/main?recursive=true` lists files, in pages that a
`Link` header joins; `lfs.oid` is the SHA-256. `GET /REPO/resolve/main/PATH` redirects to the store, which is another
host and must never see the token.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import quote, urljoin, urlsplit

import msgspec
from msgspec import Struct

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
    sha256: str = ""  # of the content, for the large files; "" for small ones, which Git itself keeps
    git: str = ""  # Git's own hash of a small file (SHA-1 over `blob SIZE`, a zero byte and the content)

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


class Failed(ModelServerError):
    """A failure after which the same request may work later."""

    def __init__(self, message: str, *, fix: str, retry_after: float = 0.0) -> None:
        super().__init__(message, status=502, code="hub_unreachable", fix=fix)
        self.retry_after = retry_after


class ModelHub:
    def __init__(self, transport: Transport, env: Mapping[str, str]) -> None:
        self._transport = transport
        self.endpoint = (env.get("HF_ENDPOINT") or DEFAULT_ENDPOINT).rstrip("/")
        self._token = (env.get("HF_TOKEN") or env.get("HUGGING_FACE_HUB_TOKEN") or "").strip()
        if not re.fullmatch(r"https?://[^\s/?#]+[^\s?#]*", self.endpoint) or not _is_origin(self.endpoint):
            fix = f"write HF_ENDPOINT={DEFAULT_ENDPOINT}, or unset it"
            raise ModelServerError(f"HF_ENDPOINT is {self.endpoint!r}, which is no address", status=400, fix=fix)

    async def files(self, repo: str) -> list[HubFile]:
        """Return all files of a repository."""
        url = f"{self.endpoint}/api/models/{repo}/tree/main?recursive=true"
        files: list[HubFile] = []
        for _ in range(MAX_PAGES):
            response = await self._get(url, {"Accept": "application/json"}, repo)
            try:
                page = await read_all(response, MAX_PAGE)
            except TransportError as error:
                raise unreachable(self.endpoint, error) from error
            finally:
                await response.aclose()
            files += _listed(page, self.endpoint)
            following = _NEXT.search(response.headers.get("link", ""))
            if following is None:
                break
            url = self._led(url, following[1])
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
            if response.status not in (301, 302, 303, 307, 308):
                if response.status not in (200, 206, 416):
                    raise await self._refused(response, url, repo)
                return response
            await response.aclose()
            url = self._led(url, response.headers.get("location", ""))
        fix = "check HF_ENDPOINT, or try again later"
        raise ModelServerError(f"{_host(self.endpoint)} redirects without end", status=502, fix=fix)

    def _led(self, url: str, target: str) -> str:
        """Return the address that an answer leads to; refuse one without encryption after one with it."""
        try:
            full = urljoin(url, target)
            scheme, host, _ = _origin(full)
        except ValueError:
            scheme, host, full = "", "", target
        if scheme not in ("http", "https") or not host:
            text = f"{_host(url)} redirects to {full[:80]!r}"
            raise ModelServerError(text, status=502, fix="check HF_ENDPOINT")
        if url.startswith("https:") and scheme == "http":
            text = f"{_host(url)} redirects to {host} without encryption"
            raise ModelServerError(text, status=502, fix="check HF_ENDPOINT")
        return full

    async def _refused(self, response: TransportResponse, url: str, repo: str) -> ModelServerError:
        """Translate a refusal into an error, and close the answer."""
        try:
            said = _reason(await read_all(response, 4096))
        except TransportError:
            said = ""
        finally:
            await response.aclose()
        status, code = response.status, response.headers.get("x-error-code", "")
        page = f"{self.endpoint}/{repo}"
        if code == "GatedRepo" or (status == 403 and not code):
            fix = f"agree to its terms on {page}, then set HF_TOKEN to a token that may read it"
            if self._token:
                fix = f"agree to its terms on {page} with the account of HF_TOKEN, or use another token"
            return ModelServerError(f"{repo} is only for those who agreed to its terms", status=403, fix=fix)
        if status == 401 and self._token and not code:
            return ModelServerError("the hub does not know the token", status=401, fix="correct HF_TOKEN, or unset it")
        if status in (401, 404):
            what = f"{repo} is not on {_host(self.endpoint)}, or is private" if code != "EntryNotFound" else said
            fix = f"check the name on {self.endpoint}; for a private one, set HF_TOKEN"
            return ModelServerError(what or f"{repo} has no such file", status=404, code="model_not_found", fix=fix)
        if status == 429:
            wait = _seconds(response.headers.get("retry-after", ""))
            hint = "" if self._token else "; with HF_TOKEN set it allows more"
            fix = f"try again in {wait:.0f} seconds{hint}" if wait else f"try again in some minutes{hint}"
            return Failed(f"{_host(url)} has had too many requests from here", fix=fix, retry_after=wait or 1.0)
        text = f"{_host(url)} answered with HTTP {status}" + (f": {said}" if said else "")
        if status >= 500:
            return Failed(text, fix="try again later", retry_after=_seconds(response.headers.get("retry-after", "")))
        return ModelServerError(text, status=502, fix="check HF_ENDPOINT and the name")


def unreachable(url: str, error: TransportError) -> Failed:
    """Translate a failure of the connection into an error."""
    host = _host(url)
    if error.kind == "dns":
        return Failed(f"{host} was not found: there is no internet, or no name server", fix="check the connection")
    if error.kind in ("refused", "connect", "connect_timeout"):
        detail = f" ({error.detail})" if error.detail else ""
        return Failed(f"{host} cannot be reached{detail}", fix="check the connection, HTTPS_PROXY and HF_ENDPOINT")
    if error.kind == "tls":
        fix = "check the clock and the certificates; a company's own are named by SSL_CERT_FILE"
        return Failed(f"{host} has no certificate that can be trusted ({error.detail})", fix=fix)
    if error.kind in ("first_byte", "idle"):
        return Failed(f"{host} fell silent for {TIMEOUTS.idle:.0f} seconds", fix="try again")
    return Failed(f"the connection to {host} broke off", fix="try again")


def _listed(page: bytes, endpoint: str) -> list[HubFile]:
    try:
        rows = msgspec.json.decode(page)
        return [_file(row) for row in rows if row["type"] == "file"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        fix = "check HF_ENDPOINT: it has to be a hub with Hugging Face's API"
        raise ModelServerError(f"{_host(endpoint)} answered with no list of files", status=502, fix=fix) from None


def _file(row: dict[str, Any]) -> HubFile:
    lfs = cast("dict[str, Any]", row.get("lfs") or {})
    size, sha = lfs.get("size", row["size"]), str(lfs.get("oid", "")).removeprefix("sha256:").lower()
    if not isinstance(size, int) or size < 0 or (sha and not re.fullmatch(r"[0-9a-f]{64}", sha)):
        raise ValueError("an invalid size or hash")
    git = str(row.get("oid", "")).lower()
    return HubFile(str(row["path"]), size, sha, git if not sha and re.fullmatch(r"[0-9a-f]{40}", git) else "")


def _reason(body: bytes) -> str:
    try:
        value: Any = msgspec.json.decode(body)
        text = str(value["error"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    return "".join(letter if letter.isprintable() else " " for letter in text[:200])


def _seconds(value: str) -> float:
    return min(float(value), 86_400.0) if re.fullmatch(r"\d{1,6}(\.\d+)?", value) else 0.0


def _origin(url: str) -> tuple[str, str, int | None]:
    parts = urlsplit(url)
    default = {"http": 80, "https": 443}.get(parts.scheme)
    return parts.scheme, parts.hostname or "", parts.port or default


def _is_origin(url: str) -> bool:
    try:
        return bool(_origin(url)[1])
    except ValueError:  # an invalid port, or half an IPv6 address
        return False


def _host(url: str) -> str:
    parts = urlsplit(url)
    return parts.netloc.rpartition("@")[2] or url
