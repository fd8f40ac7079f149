"""Guard: checks Host, Origin and the head of each request and socket before its route.

Any web site can have a browser send requests to this machine. The browser says so (`Origin`, `Sec-Fetch-Site`), or
takes this server for the site's own (DNS rebinding: `Host` is then a foreign name). Sources: WHATWG Fetch, section 3.2;
W3C Fetch Metadata, section 2.3; RFC 9110, section 7.2; RFC 9112, section 6.3 (framing).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, cast
from urllib.parse import parse_qsl, urlsplit

from msgspec import Struct
from starlette.requests import cookie_parser

from lmagent.core.errors import LmagentError
from lmagent.gateway.http.access import Access, Caller
from lmagent.gateway.http.errors import Refusal
from lmagent.gateway.http.route import told
from lmagent.modelserver.http.guard import is_loopback

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Scope = MutableMapping[str, Any]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

MAX_HEAD = 64 * 1024
"""Bytes of a request's head."""

WROTE = b"x-lmagent-request"
"""A header that forms and links cannot send; it proves that a write is intended: `X-LMAgent-Request: 1`."""

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
"""Policy of the page: only resources from this server, and no evaluation of text as code.
The only exception is the address of worker.js, for which the page has its own policy.
"""

_USED = ("camera", "display-capture", "geolocation", "microphone", "midi", "payment", "usb", "serial", "hid")
PROTECTION: tuple[tuple[bytes, bytes], ...] = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", ", ".join(f"{name}=()" for name in _USED).encode()),
    (b"cache-control", b"no-store"),
)
"""Headers of answers that do not set them themselves."""

_SECRET_NAMES = frozenset(
    {
        *("token", "access_token", "agent_token", "api_key", "apikey", "api-key", "auth", "authorization", "bearer"),
        *("pin", "password", "secret"),
    }
)
_LAST = {"connection": "close"}
"""The end of such a request is unknown, so the bytes after it are not read as another request."""

_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?")
_SAFE = frozenset({"GET", "HEAD"})


class GuardRules(Struct, frozen=True):
    """The names of this server.

    Attributes:
        is_local: the server listens on loopback only.
        names: names besides localhost and the address that the connection came in by.
    """

    is_local: bool = True
    names: tuple[str, ...] = ()


LOOPBACK = GuardRules()


class Headers:
    """The headers of a request, the first of each name, with lower-case names; `size` in bytes."""

    def __init__(self, scope: Scope) -> None:
        self._first: dict[bytes, bytes] = {}
        self.size = 0
        for name, value in cast("list[tuple[bytes, bytes]]", scope["headers"]):
            self._first.setdefault(name, value)
            self.size += len(name) + len(value) + 4

    def get(self, name: bytes) -> bytes:
        """Return a header's value, empty if missing."""
        return self._first.get(name, b"")

    def text(self, name: bytes) -> str:
        return self.get(name).decode("latin-1")

    def __contains__(self, name: bytes) -> bool:
        return name in self._first

    @property
    def cookies(self) -> dict[str, str]:
        return cookie_parser(self.text(b"cookie")) if b"cookie" in self else {}


class Guard:
    """An ASGI middleware that refuses unsafe requests and adds the caller as `scope["lmagent"]`."""

    def __init__(self, app: App, access: Access, rules: GuardRules) -> None:
        self._app = app
        self._access = access
        self._rules = rules
        self._names = frozenset(name.lower().rstrip(".") for name in rules.names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope)
        sender = protected(send)
        try:
            self._inspect(scope, headers)
            caller = self._access.caller(headers.get(b"authorization"), headers.cookies)
        except LmagentError as refusal:
            await refuse(refusal, scope, receive, sender)
            return
        if caller != "anyone" and (trust := scope.get("state", {}).get("connection")) is not None:
            trust.known = True
        scope["lmagent"] = Visitor(caller, headers)
        await self._app(scope, receive, sender)

    def _inspect(self, scope: Scope, headers: Headers) -> None:
        if headers.size + len(scope.get("raw_path") or b"") + len(scope["query_string"]) > MAX_HEAD:
            raise Refusal(431, "head_too_large", f"the head of the request has more than {MAX_HEAD // 1024} kB")
        if scope["http_version"] not in ("1.0", "1.1"):
            raise Refusal(505, "http_version", "this server speaks HTTP/1.1", headers=_LAST)
        if b"transfer-encoding" in headers and b"content-length" in headers:
            text = "the request has two lengths: Content-Length and Transfer-Encoding"
            raise Refusal(400, "ambiguous", text, headers=_LAST)
        self._inspect_host(scope, headers.text(b"host"))
        self._inspect_origin(scope, headers)
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

    def _inspect_origin(self, scope: Scope, headers: Headers) -> None:
        if b"origin" in headers:
            origin = headers.text(b"origin")
            if not _is_same(origin, headers.text(b"host")):
                text = f"pages of {origin[:200]!r} may not use this server"
                raise Refusal(403, "foreign_origin", text, fix="use its own page, or a program with the token")


class Visitor(Struct, frozen=True):
    caller: Caller
    headers: Headers

    def admit(self, method: str, *, is_open: bool) -> None:
        """Check that the caller may use a route.

        Raises:
            Refusal: credentials are missing (401), or another site or a form may have sent the request (403).
        """
        if is_open:
            return
        if self.caller == "anyone":
            fix = "log in with the PIN, or send 'Authorization: Bearer TOKEN' (lmagent web token shows it)"
            raise Refusal(401, "no_credentials", "this needs credentials", fix=fix)
        if self.caller == "token":
            return
        if self.headers.get(b"sec-fetch-site") in (b"cross-site", b"same-site"):
            raise Refusal(403, "foreign_origin", "a page of another site asks for this")
        if method not in _SAFE and self.headers.get(WROTE) != b"1":
            text = "a write of a browser has to say that it is meant"
            raise Refusal(403, "not_meant", text, fix="send the header X-LMAgent-Request: 1")


def _is_same(origin: str, host: str) -> bool:
    """Whether the origin is this server's page. The scheme is ignored: a proxy may add TLS."""
    try:
        parts = urlsplit(origin)
        return parts.scheme in ("http", "https") and parts.netloc.lower() == host.lower()
    except ValueError:  # such as "http://["
        return False


def protected(send: Send) -> Send:
    """Return a `send` that adds the headers of `PROTECTION`."""

    async def sender(message: Message) -> None:
        if message["type"] in ("http.response.start", "websocket.http.response.start"):
            given = list(message.get("headers", ()))
            names = {name.lower() for name, _ in given}
            message["headers"] = given + [field for field in PROTECTION if field[0] not in names]
        await send(message)

    return sender


async def refuse(refusal: Exception, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with an error; a socket is refused before it opens."""
    await told(refusal)(scope, receive, send)
