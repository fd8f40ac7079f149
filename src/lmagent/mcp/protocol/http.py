"""HTTP: a server at an address, as a transport of the SDK (streamable HTTP)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio

from lmagent.mcp.protocol.lines import LONGEST, AnswerSize, Flood
from lmagent.mcp.protocol.link import McpLink
from lmagent.mcp.spec import ServerSpec

if TYPE_CHECKING:
    import httpx2

CONNECT = 10.0
SILENCE = 3600.0
"""Seconds without a byte of an open answer; the timeout of a call is counted elsewhere."""

BETWEEN = 1.0
"""Seconds between two requests for a stream: a server may close each at once, and ask for another without a pause."""

GOODBYE = 5.0
"""Seconds that the end of a session may take."""

RATE = 8 << 20
"""Bytes that are read in a second from a stream of events, which may never end."""


@asynccontextmanager
async def address(spec: ServerSpec, auth: Any, link: McpLink) -> AsyncGenerator[Any]:
    """Connect to a server's address, and yield its streams of messages; `link` receives why it fails."""
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    async def note(response: httpx2.Response) -> None:
        if response.status_code in (401, 403):
            link.needs_login = True
            link.reason = f"{_place(spec)} asks for a login" if response.status_code == 401 else _forbidden(spec)
        elif response.is_success:
            link.answered = ""
            if link.needs_login:  # the token was refreshed
                link.needs_login, link.reason = False, ""
        elif response.status_code >= 400 and response.request.method == "POST" and not link.ended.is_set():
            phrase = httpx2.codes.get_reason_phrase(response.status_code)  # not the server's, which may quote a key
            link.answered = f"{_place(spec)} answers {response.status_code} {phrase}".rstrip()
            if response.status_code == 404 and "mcp-session-id" in response.request.headers:
                link.end("it has forgotten the session, and is connected to anew")

    transport = _capped(link, spec)
    timeout = httpx2.Timeout(CONNECT, read=SILENCE, write=60.0)
    async with (
        httpx2.AsyncClient(
            headers={"Accept-Encoding": "identity", **spec.headers},
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
        next_stream = 0.0

        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            if request.method == "GET":
                now = anyio.current_time()
                self.next_stream = max(now, self.next_stream) + BETWEEN
                await anyio.sleep(self.next_stream - BETWEEN - now)
            try:
                with anyio.fail_after(GOODBYE if request.method == "DELETE" else None):
                    response = await super().handle_async_request(request)
            except httpx2.HTTPError as error:
                link.reason = link.reason or _failure(spec, error)
                if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout):
                    link.end(link.reason)
                raise
            if response.headers.get("content-encoding", "identity") != "identity":
                await response.aclose()
                link.end("it sent a compressed answer, which was not asked for")
                raise httpx2.ReadError(link.reason)
            has_events = response.headers.get("content-type", "").startswith("text/event-stream")
            response.stream = Counted(response.stream, AnswerSize(has_events=has_events))
            return response

    class Counted(httpx2.AsyncByteStream):
        def __init__(self, inner: Any, answer: AnswerSize) -> None:
            self._inner = inner
            self._answer = answer

        async def __aiter__(self) -> AsyncIterator[bytes]:
            async for piece in self._inner:
                try:
                    self._answer.count(piece)
                except Flood as flood:
                    link.end(str(flood))
                    raise httpx2.ReadError(link.reason) from None
                yield piece
                if self._answer.has_events:
                    await anyio.sleep(len(piece) / RATE)

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
