"""Guard: checks of Host, Origin and key, in that order, before every route.

A page of any web site can send requests to a server on this machine. Its browser adds `Origin`, or believes that the
server is the site's own (DNS rebinding: then `Host` is a name that is not ours). Sources: WHATWG Fetch, section 3.2
(CORS protocol); RFC 9110 section 7.2 (Host).
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from typing import Any, cast
from urllib.parse import urlsplit

from msgspec import Struct

from lmagent.modelserver.errors import BadRequest
from lmagent.modelserver.http.bodies import Message, Receive, Scope, Send
from lmagent.modelserver.http.reply import ClientReply

OPEN = frozenset({"/health", "/v1/health"})
"""Paths that need no key: they say that the server is up, and nothing else."""

_SAFE = frozenset({"GET", "HEAD"})
_METHODS = b"GET, POST, OPTIONS"
_HEADERS = b"authorization, content-type, x-api-key, anthropic-version, x-stainless-*"


class AccessRules(Struct, frozen=True):
    """The clients that are allowed."""

    bind: str = "127.0.0.1"  # the address that the server listens on
    key: str = ""  # the key that a request needs; empty for none
    any_origin: bool = False  # pages of all sites may ask
    origins: tuple[str, ...] = ()  # sites whose pages may ask (`https://chat.example`)


def is_loopback(host: str) -> bool:
    """Tell whether an address or name is this machine's own, which no other machine reaches."""
    name = host.strip("[]").rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


class AccessGuard:
    """An ASGI application that passes allowed requests to another."""

    def __init__(self, app: Any, rules: AccessRules) -> None:
        self._app = app
        self._rules = rules
        self._local = is_loopback(rules.bind)
        self._key = _digest(rules.key.encode())
        self._origins = frozenset(origin.rstrip("/").lower() for origin in rules.origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
                return
            await self._app(scope, receive, send)
            return
        fields: dict[bytes, bytes] = {}
        for name, value in cast("list[tuple[bytes, bytes]]", scope["headers"]):
            fields.setdefault(name, value)
        origin = fields.get(b"origin", b"").decode("latin-1")
        allowed = self._cors(origin)
        sender = _with_fields(send, allowed) if allowed else send
        refusal = self._refusal(scope, fields, origin, allowed=bool(allowed))
        if refusal is not None:
            await ClientReply(sender).fail(refusal)
        elif scope["method"] == "OPTIONS":
            await _preflight(fields, allowed, send)
        else:
            await self._app(scope, receive, sender)

    def _refusal(self, scope: Scope, fields: dict[bytes, bytes], origin: str, *, allowed: bool) -> BadRequest | None:
        host = fields.get(b"host", b"").decode("latin-1")
        if self._local and not is_loopback(_hostname(host)):
            text = f"the name {host[:200]!r} is not one of this server's, which listens on {self._rules.bind} only"
            fix = "ask for it as localhost, or start it with --bind and an API key"
            return BadRequest(text, status=403, code="host_not_allowed", fix=fix)
        method = scope["method"]
        if origin and not allowed and method not in _SAFE and not _same(origin, host):
            text = f"pages of {origin[:200]!r} may not use this server"
            fix = f"if they should: lmagent server start --cors-origin {origin[:200]}"
            return BadRequest(text, status=403, code="origin_not_allowed", fix=fix)
        if self._rules.key and scope["path"] not in OPEN and method != "OPTIONS" and not self._has_key(fields):
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

    def _cors(self, origin: str) -> list[tuple[bytes, bytes]]:
        """Return the headers for the browser; empty if the origin is not allowed."""
        if not origin:
            return []
        if self._rules.any_origin:
            return [(b"access-control-allow-origin", b"*")]
        if origin.lower() in self._origins:
            return [(b"access-control-allow-origin", origin.encode("latin-1")), (b"vary", b"Origin")]
        return []


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


def _with_fields(send: Send, fields: list[tuple[bytes, bytes]]) -> Send:
    async def sender(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), *fields]
        await send(message)

    return sender


async def _preflight(asked: dict[bytes, bytes], allowed: list[tuple[bytes, bytes]], send: Send) -> None:
    fields = [(b"allow", _METHODS)]
    if allowed:
        wanted = asked.get(b"access-control-request-headers", _HEADERS)
        fields += [*allowed, (b"access-control-allow-methods", _METHODS)]
        fields += [(b"access-control-allow-headers", wanted), (b"access-control-max-age", b"600")]
        if asked.get(b"access-control-request-private-network") == b"true":
            fields.append((b"access-control-allow-private-network", b"true"))
    await send({"type": "http.response.start", "status": 204, "headers": fields})
    await send({"type": "http.response.body", "body": b""})
