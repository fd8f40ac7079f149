"""Guard: checks of Host, Origin and key, in that order, before every route.

A page of any web site can send requests to a server on this machine. Its browser adds `Origin`, or believes that the
server is the site's own (DNS rebinding: then `Host` is a name that is not ours). Sources: WHATWG Fetch, section 3.2
(CORS protocol); RFC 9110 section 7.2 (Host).
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Any, cast
from urllib.parse import urlsplit

from msgspec import Struct
from starlette.middleware.cors import CORSMiddleware

from lmagent.modelserver.errors import BadRequest
from lmagent.modelserver.http.bodies import Receive, Scope, Send
from lmagent.modelserver.http.listening import is_loopback
from lmagent.modelserver.http.reply import ClientReply

OPEN = frozenset({"/health", "/v1/health"})  # paths that need no key: they say that the server is up, and nothing else


class AccessRules(Struct, frozen=True):
    """The clients that are allowed."""

    bind: str = "127.0.0.1"  # the address that the server listens on
    key: str = ""  # the key that a request needs; empty for none
    any_origin: bool = False  # pages of all sites may ask
    origins: tuple[str, ...] = ()  # sites whose pages may ask (`https://chat.example`)


def guarded(app: Any, rules: AccessRules) -> Any:
    """Return the application behind the checks, with the headers that let allowed pages read its answers."""
    guard = AccessGuard(app, rules)
    origins = ("*",) if rules.any_origin else guard.origins
    if not origins:
        return guard
    return CORSMiddleware(guard, origins, ("GET", "POST"), ("*",), allow_private_network=True)


class AccessGuard:
    """An ASGI application that passes allowed requests to another."""

    def __init__(self, app: Any, rules: AccessRules) -> None:
        self._app = app
        self._rules = rules
        self._local = is_loopback(rules.bind)
        self._key = _digest(rules.key.encode())
        self.origins = frozenset(origin.rstrip("/").lower() for origin in rules.origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._refusal(scope) if scope["type"] == "http" else None
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        elif refusal is not None:
            await ClientReply(send).fail(refusal)
        else:
            await self._app(scope, receive, send)

    def _refusal(self, scope: Scope) -> BadRequest | None:
        fields: dict[bytes, bytes] = {}
        for name, value in cast("list[tuple[bytes, bytes]]", scope["headers"]):
            fields.setdefault(name, value)
        host, origin = (fields.get(name, b"").decode("latin-1") for name in (b"host", b"origin"))
        if self._local and not is_loopback(_hostname(host)):
            text = f"the name {host[:200]!r} is not one of this server's, which listens on {self._rules.bind} only"
            fix = "ask for it as localhost, or start it with --bind and an API key"
            return BadRequest(text, status=403, code="host_not_allowed", fix=fix)
        allowed = self._rules.any_origin or origin.lower() in self.origins or _same(origin, host)
        if origin and not allowed and scope["method"] not in ("GET", "HEAD"):
            text = f"pages of {origin[:200]!r} may not use this server"
            fix = f"if they should: lmagent server start --cors-origin {origin[:200]}"
            return BadRequest(text, status=403, code="origin_not_allowed", fix=fix)
        if self._rules.key and scope["path"] not in OPEN and not self._has_key(fields):
            text = "the API key is missing or wrong"
            fix = "send it as 'Authorization: Bearer KEY'; lmagent server start says where it is kept"
            return BadRequest(text, status=401, code="invalid_api_key", fix=fix)
        return None

    def _has_key(self, fields: dict[bytes, bytes]) -> bool:
        """Compare digests in constant time, so that not even the key's length shows."""
        scheme, _, token = fields.get(b"authorization", b"").partition(b" ")
        given = token.strip() if scheme.lower() == b"bearer" else b""
        bearer = hmac.compare_digest(_digest(given), self._key)
        return hmac.compare_digest(_digest(fields.get(b"x-api-key", b"")), self._key) or bearer


def _digest(text: bytes) -> bytes:
    return hashlib.sha256(text).digest()


def _hostname(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _same(origin: str, host: str) -> bool:
    try:
        return urlsplit(origin).netloc.lower() == host.lower() if "://" in origin and host else False
    except ValueError:  # such as "http://["
        return False
