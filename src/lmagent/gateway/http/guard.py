"""Guard: checks Host, Origin and the head of each request and socket before its route.

Any web site can have a browser send requests to this machine. The browser says so (`Origin`, `Sec-Fetch-Site`), or
takes this server for the site's own (DNS rebinding: `Host` is then a foreign name). Sources: WHATWG Fetch, section 3.2;
W3C Fetch Metadata, section 2.3; RFC 9110, section 7.2; RFC 9112, section 6.3 (framing).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Awaitable, Callable
from urllib.parse import parse_qsl, urlsplit

from msgspec import Struct
from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.types import Message, Receive, Scope, Send

from lmagent.gateway.http.access import Access, Caller
from lmagent.gateway.http.errors import Refusal
from lmagent.modelserver.http.listening import is_loopback

App = Callable[[Scope, Receive, Send], Awaitable[None]]

MAX_HEAD = 64 * 1024  # bytes of a request's head

# A header that forms and links cannot send; it proves that a write is intended: `X-LMAgent-Request: 1`.
WROTE = "x-lmagent-request"

# Policy of the page: only resources from this server, and no evaluation of text as code. The only exception is the
# address of worker.js, for which the page has its own policy.
POLICY = "; ".join(
    (
        "default-src 'none'",
        *(f"{kind}-src 'self'" for kind in ("script", "style", "connect", "font", "manifest")),
        "img-src 'self' blob: data:",
        "frame-src 'self'",
        *(f"{what} 'none'" for what in ("base-uri", "form-action", "frame-ancestors")),
        "require-trusted-types-for 'script'",
        "trusted-types worker",
    )
)

_USED = ("camera", "display-capture", "geolocation", "microphone", "midi", "payment", "usb", "serial", "hid")
# Headers of answers that do not set them themselves.
PROTECTION: tuple[tuple[bytes, bytes], ...] = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", ", ".join(f"{name}=()" for name in _USED).encode()),
    (b"cache-control", b"no-store"),
)

_SECRET_NAMES = frozenset(
    {
        *("token", "access_token", "agent_token", "api_key", "apikey", "api-key", "auth", "authorization", "bearer"),
        *("pin", "password", "secret"),
    }
)
# The end of such a request is unknown, so the bytes after it are not read as another request.
_LAST = {"connection": "close"}

_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?")
_SAFE = frozenset({"GET", "HEAD"})


class GuardRules(Struct, frozen=True):
    """Whether the server listens on loopback only, and its names besides localhost and the address of a connection."""

    is_local: bool = True
    names: tuple[str, ...] = ()


LOOPBACK = GuardRules()


class Guard:
    """Refuses unsafe requests and identifies the caller of the others."""

    def __init__(self, access: Access, rules: GuardRules) -> None:
        self._access = access
        self._rules = rules
        self._names = frozenset(name.lower().rstrip(".") for name in rules.names)

    def visitor(self, scope: Scope) -> Visitor:
        """Return the caller of a request or socket."""
        headers = Headers(scope=scope)
        self._inspect(scope, headers)
        caller = self._access.caller(*credentials(headers))
        if caller != "anyone" and (connection := scope.get("state", {}).get("connection")) is not None:
            connection.know()
        return Visitor(caller, headers)

    def _inspect(self, scope: Scope, headers: Headers) -> None:
        size = sum(len(name) + len(value) + 4 for name, value in headers.raw)
        if size + len(scope.get("raw_path") or b"") + len(scope["query_string"]) > MAX_HEAD:
            raise Refusal(431, "head_too_large", f"the head of the request has more than {MAX_HEAD // 1024} kB")
        if scope["http_version"] not in ("1.0", "1.1"):
            raise Refusal(505, "http_version", "this server speaks HTTP/1.1", headers=_LAST)
        if "transfer-encoding" in headers and "content-length" in headers:
            text = "the request has two lengths: Content-Length and Transfer-Encoding"
            raise Refusal(400, "ambiguous", text, headers=_LAST)
        self._inspect_host(scope, headers.get("host", ""))
        origin = headers.get("origin")
        if origin is not None and not _is_same(origin, headers.get("host", "")):
            text = f"pages of {origin[:200]!r} may not use this server"
            raise Refusal(403, "foreign_origin", text, fix="use its own page, or a program with the token")
        if not scope["path"].startswith("/") or "\0" in scope["path"]:
            raise Refusal(400, "invalid", "this is no path", fix="a request names a path that begins with a slash")
        for name, value in parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True):
            if name.lower() in _SECRET_NAMES or self._access.token in value:
                text = "tokens do not belong into addresses: they are kept in histories and logs"
                raise Refusal(400, "token_in_url", text, fix="send it as 'Authorization: Bearer TOKEN'")

    def _inspect_host(self, scope: Scope, host: str) -> None:
        found = _HOST.fullmatch(host)
        name = found[1].strip("[]").rstrip(".").lower() if found else ""
        if name and (is_loopback(name) or name in self._names or self._came_in_by(scope, name)):
            return
        text = f"{host[:200]!r} is not a name of this server"
        fix = "ask for it as localhost" if self._rules.is_local else "lmagent web --name NAME lets it answer to a name"
        raise Refusal(421, "wrong_host", text, fix=fix)

    def _came_in_by(self, scope: Scope, name: str) -> bool:
        """Whether `name` is the address that the connection was made to: a foreign page cannot be served from there."""
        if self._rules.is_local or not scope.get("server"):
            return False
        try:
            here = ipaddress.ip_address(str(scope["server"][0]).partition("%")[0])
            return ipaddress.ip_address(name) in (here, getattr(here, "ipv4_mapped", None))
        except ValueError:
            return False


def credentials(headers: Headers) -> tuple[bytes, dict[str, str]]:
    """Return the `Authorization` header and the cookies."""
    return headers.get("authorization", "").encode("latin-1"), cookie_parser(headers.get("cookie", ""))


class Visitor(Struct, frozen=True):
    """The sender of a request; `key` identifies a sender whom another gateway has let in."""

    caller: Caller
    headers: Headers
    key: bytes = b""

    def admit(self, method: str, *, is_open: bool) -> None:
        """Check that the caller may use a route."""
        if is_open:
            return
        if self.caller == "anyone":
            fix = "log in with the PIN, or send 'Authorization: Bearer TOKEN' (lmagent web token shows it)"
            raise Refusal(401, "no_credentials", "this needs credentials", fix=fix)
        if self.caller == "token":
            return
        if self.headers.get("sec-fetch-site") in ("cross-site", "same-site"):
            raise Refusal(403, "foreign_origin", "a page of another site asks for this")
        if method not in _SAFE and self.headers.get(WROTE) != "1":
            text = "a write of a browser has to say that it is meant"
            raise Refusal(403, "not_meant", text, fix="send the header X-LMAgent-Request: 1")


def _is_same(origin: str, host: str) -> bool:
    """Whether the origin is this server's page. The scheme is ignored: a proxy may add TLS."""
    try:
        parts = urlsplit(origin)
        return parts.scheme in ("http", "https") and parts.netloc.lower() == host.lower()
    except ValueError:  # such as "http://["
        return False


def protect(message: Message) -> None:
    """Add the headers of `PROTECTION` to the start of an answer."""
    given = list(message.get("headers", ()))
    names = {name.lower() for name, _ in given}
    message["headers"] = given + [field for field in PROTECTION if field[0] not in names]
