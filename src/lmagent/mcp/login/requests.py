"""Requests: what a login sends and receives: bounded, without secrets in its errors, and to no place inside.

A server names the addresses of its login, so they are not trusted: one on the internet must not make us send requests
to the user's own network. The certificate of an address proves its name, which is resolved twice: here and by the
connection.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from ipaddress import ip_address
from typing import Any, cast
from urllib.parse import parse_qsl, urlsplit

import anyio
import httpx2
import msgspec
from mcp.client.auth import OAuthFlowError

from lmagent.sandbox.hosts import is_public

LONGEST = 1_000_000
"""Bytes of an answer of an authorization server."""

_SECRETS = frozenset(
    (
        *("code", "code_verifier", "device_code", "access_token", "refresh_token", "id_token"),
        *("client_secret", "client_assertion", "registration_access_token"),
    )
)


async def answer_of(http: httpx2.AsyncClient, request: httpx2.Request) -> httpx2.Response:
    """Send a request, and return its answer, which is bounded. Redirects are not followed. Raises OAuthFlowError."""
    response = await http.send(request, stream=True)
    content = bytearray()
    try:
        async for piece in response.aiter_bytes():
            content += piece
            if len(content) > LONGEST:
                raise OAuthFlowError("an answer is too long")
    finally:
        await response.aclose()
    gone = ("content-encoding", "content-length", "transfer-encoding")
    headers = [(name, value) for name, value in response.headers.multi_items() if name.lower() not in gone]
    read = httpx2.Response(response.status_code, headers=headers, content=bytes(content), request=response.request)
    read.next_request = response.next_request
    return read


def secrets_of(content: bytes) -> Iterator[str]:
    """Return the codes, tokens and keys in a form, or in an object of JSON."""
    try:
        document: Any = msgspec.json.decode(content)
    except (ValueError, RecursionError):
        document = dict(parse_qsl(content.decode("utf-8", "replace")))
    if isinstance(document, dict):
        named = cast("dict[str, Any]", document).items()
        yield from (str(value) for name, value in named if name in _SECRETS)


async def leads_inside(server: str, address: str, issuer: str = "") -> bool:
    """Return whether a server on the internet leads to an address that is not there.

    The server's own host may be reached, and that of the `issuer` which the user names.
    """
    own, host = urlsplit(server).hostname, urlsplit(address).hostname
    if host in (own, urlsplit(issuer).hostname):
        return False
    return await _is_on_internet(own or "") and not await _is_on_internet(host or "")


async def _is_on_internet(host: str) -> bool:
    try:
        found = await anyio.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        return all(is_public(ip_address(entry[4][0])) for entry in found)
    except (OSError, ValueError):  # only a proxy may know it
        return True
