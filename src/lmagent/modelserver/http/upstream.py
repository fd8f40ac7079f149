"""Upstream: requests to the engines.

The body of a stream is taken from the connection itself (`providers/wire.py`): all bytes that have arrived in one turn
of the loop are passed on in one piece.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator

import httpcore
from msgspec import Struct

from lmagent.modelserver.errors import Lost
from lmagent.providers.wire import Wires, body_of, wire_of

CONNECT = 10.0  # seconds to open a connection
MAX_ANSWER = 256 * 1024 * 1024  # bytes of an answer that is read as a whole


class BrokenOff(Exception):
    """An answer that ended before its end."""


class EngineAnswer(Struct, frozen=True):
    """An answer whose body is still coming."""

    status: int  # HTTP status
    content_type: bytes  # as the engine sent it
    raw: httpcore.Response  # httpcore's answer

    async def whole(self) -> bytes:
        body = bytearray()
        async for piece in self.pieces():
            body += piece
            if len(body) > MAX_ANSWER:
                raise BrokenOff(f"the answer is larger than {MAX_ANSWER} bytes")
        return bytes(body)

    def pieces(self) -> AsyncIterator[bytes]:
        return _pieces(self.raw)

    async def aclose(self) -> None:
        await self.raw.aclose()


class Upstream:
    def __init__(self) -> None:
        self._pool = httpcore.AsyncConnectionPool(
            max_connections=10_000, max_keepalive_connections=32, keepalive_expiry=30, network_backend=Wires()
        )

    async def send(self, method: str, url: str, body: bytes, key: str = "") -> EngineAnswer:
        """Send a request and return as soon as the head of the answer is there."""
        host = url.split("/", 3)[2]
        headers = [(b"Host", host.encode()), (b"Accept-Encoding", b"identity"), (b"User-Agent", b"lmagent")]
        if key:
            headers.append((b"Authorization", b"Bearer " + key.encode()))
        if method == "POST":
            headers += [(b"Content-Type", b"application/json"), (b"Content-Length", b"%d" % len(body))]
        request = httpcore.Request(
            method, url, headers=headers, content=body, extensions={"timeout": {"connect": CONNECT}}
        )
        pool = self._pool
        reused = bool(pool.connections)
        try:
            try:
                raw = await pool.handle_async_request(request)
            except (httpcore.RemoteProtocolError, httpcore.ReadError, httpcore.WriteError):
                if not reused:
                    raise
                raw = await pool.handle_async_request(request)  # a kept connection that was just being closed
        except (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError) as error:
            raise Lost(f"no answer from {host}: {error or type(error).__name__}", status=502, code="lost") from error
        fields = {name.lower(): value for name, value in raw.headers}
        return EngineAnswer(raw.status, fields.get(b"content-type", b"application/json"), raw)

    async def ask(self, method: str, url: str, body: bytes, key: str = "") -> tuple[int, bytes]:
        """Return status and body of a short answer."""
        answer = await self.send(method, url, body, key)
        try:
            return answer.status, await answer.whole()
        except BrokenOff as error:
            raise Lost(f"the answer broke off: {error}", status=502, code="lost") from error
        finally:
            await answer.aclose()

    async def aclose(self) -> None:
        await self._pool.aclose()


async def _pieces(raw: httpcore.Response) -> AsyncGenerator[bytes]:
    wire = wire_of(raw)
    try:
        async for piece in body_of(raw, wire) if wire is not None else raw.aiter_stream():
            yield piece
    except (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError) as error:
        raise BrokenOff(str(error) or type(error).__name__) from error
