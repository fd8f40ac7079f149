"""HTTP: a server at an address, as a transport of the SDK (streamable HTTP)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from lmagent.mcp.protocol.lines import LONGEST
from lmagent.mcp.protocol.link import McpLink
from lmagent.mcp.spec import ServerSpec

if TYPE_CHECKING:
    import httpx2

CONNECT = 10.0
SILENCE = 3600.0
"""Seconds without a byte of an open answer; the timeout of a call is counted elsewhere."""


@asynccontextmanager
async def address(spec: ServerSpec, auth: Any, link: McpLink) -> AsyncGenerator[Any]:
    """Connect to a server's address, and yield its streams of messages; `link` receives why it fails."""
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    async def note(response: httpx2.Response) -> None:
        if response.status_code in (401, 403):
            link.needs_login = True
            link.reason = f"{_place(spec)} asks for a login" if response.status_code == 401 else _forbidden(spec)
        elif response.is_success and link.needs_login:  # the token was refreshed
            link.needs_login, link.reason = False, ""
        elif response.status_code >= 400 and response.request.method == "POST" and not link.ended.is_set():
            link.answered = f"{_place(spec)} answers {response.status_code} {response.reason_phrase}".rstrip()

    transport = _capped(link, spec)
    timeout = httpx2.Timeout(CONNECT, read=SILENCE, write=60.0)
    async with (
        httpx2.AsyncClient(
            headers=dict(spec.headers),
            auth=auth,
            timeout=timeout,
            transport=transport,
            event_hooks={"response": [note]},
        ) as client,
        streamable_http_client(spec.url, http_client=client, max_sse_event_size=LONGEST) as streams,
    ):
        yield streams


def _capped(link: McpLink, spec: ServerSpec) -> httpx2.AsyncBaseTransport:
    """Return a transport that notes why a request failed, and refuses an answer that is too long."""
    import httpx2

    class Capped(httpx2.AsyncHTTPTransport):
        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            try:
                response = await super().handle_async_request(request)
            except httpx2.HTTPError as error:
                link.reason = link.reason or _failure(spec, error)
                if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout):
                    link.end(link.reason)
                raise
            if not response.headers.get("content-type", "").startswith("text/event-stream"):
                response.stream = Counted(response.stream)
            return response

    class Counted(httpx2.AsyncByteStream):
        def __init__(self, inner: Any) -> None:
            self._inner = inner

        async def __aiter__(self) -> AsyncIterator[bytes]:
            length = 0
            async for piece in self._inner:
                length += len(piece)
                if length > LONGEST:
                    link.reason = f"it sent an answer of more than {LONGEST >> 20} MB"
                    raise httpx2.ReadError(link.reason)
                yield piece

        async def aclose(self) -> None:
            await self._inner.aclose()

    return Capped()


def _failure(spec: ServerSpec, error: httpx2.HTTPError) -> str:
    import httpx2

    if isinstance(error, httpx2.ConnectTimeout):
        return f"{_place(spec)} did not accept a connection within {CONNECT:.0f} seconds"
    if isinstance(error, httpx2.ConnectError):
        why = str(error) or "no connection"
        return f"nothing answers at {_place(spec)}: {why}"
    return f"the connection to {_place(spec)} failed: {str(error) or type(error).__name__}"


def _forbidden(spec: ServerSpec) -> str:
    return f"{_place(spec)} refuses access: the login or the key does not cover it"


def _place(spec: ServerSpec) -> str:
    """Return a server's host; an address may hold a key."""
    from urllib.parse import urlsplit

    parts = urlsplit(spec.url)
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{parts.hostname or ''}{port}"
