"""Relays allowed messages between a client and a server, piece by piece; nothing is kept.

Each side sends only when the other has taken the piece before, so a slow reader slows the writer down, and memory does
not depend on sizes.
"""

from __future__ import annotations

import contextlib

import anyio
from anyio import CancelScope
from anyio.abc import SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from lmagent.sandbox.proxyhttp import (
    HEAD_LIMIT,
    Body,
    ProxyRefusal,
    ProxyRequest,
    ProxyResponse,
    copy_body,
    parse_response,
)

GONE = (
    anyio.BrokenResourceError,
    anyio.ClosedResourceError,
    anyio.EndOfStream,
    anyio.IncompleteRead,
    OSError,
)
"""The other side has closed, reset or vanished."""

_INTERIM = 8
"""Interim answers (1xx) that are skipped before the real one."""


class _ServerGone(Exception):
    """The server accepts no more data."""


class _Clock:
    """Cancels its scope when no data has passed for a while."""

    def __init__(self, scope: CancelScope, idle: float) -> None:
        self._scope, self._idle = scope, idle
        self.touch()

    def touch(self) -> None:
        self._scope.deadline = anyio.current_time() + self._idle


async def tunnel(client: SocketStream, server: SocketStream, idle: float) -> None:
    """Carry bytes both ways until both sides have ended, one has failed, or no data passes for `idle` seconds."""
    await client.send(b"HTTP/1.1 200 Connection established\r\n\r\n")
    async with anyio.create_task_group() as group:
        clock = _Clock(group.cancel_scope, idle)

        async def pump(source: SocketStream, sink: SocketStream) -> None:
            try:
                while True:
                    try:
                        piece = await source.receive()
                    except anyio.EndOfStream:
                        await sink.send_eof()
                        return
                    await sink.send(piece)
                    clock.touch()
            except GONE:
                group.cancel_scope.cancel()

        group.start_soon(pump, client, server)
        group.start_soon(pump, server, client)


async def exchange(
    client: SocketStream, source: BufferedByteReceiveStream, server: SocketStream, request: ProxyRequest, idle: float
) -> None:
    """Pass a request on, and its answer back, both at once: a server may answer before it has read everything.

    It ends after `idle` seconds without data.

    Raises:
        Refusal: it failed before an answer had begun.
    """
    carried = _Exchange(client, source, server, request)
    async with anyio.create_task_group() as group:
        carried.scope, carried.clock = group.cancel_scope, _Clock(group.cancel_scope, idle)
        group.start_soon(carried.upload)
        await carried.download()
        group.cancel_scope.cancel()
    if not carried.answered:
        raise carried.refusal or ProxyRefusal(504, f"{request.target} does not answer")


class _Exchange:
    scope: CancelScope
    clock: _Clock

    def __init__(
        self, client: SocketStream, source: BufferedByteReceiveStream, server: SocketStream, request: ProxyRequest
    ) -> None:
        self._client, self._source, self._server, self._request = client, source, server, request
        self.answered = False
        self.refusal: ProxyRefusal | None = None

    async def upload(self) -> None:
        try:
            await self._to_server(self._request.encode())
            if self._request.expects and self._request.body != Body():
                await self._client.send(b"HTTP/1.1 100 Continue\r\n\r\n")
            await copy_body(self._source, self._request.body, self._to_server)
        except _ServerGone:
            return
        except ProxyRefusal as refusal:
            self.refusal = refusal
            self.scope.cancel()
        except GONE:
            self.scope.cancel()

    async def download(self) -> None:
        source = BufferedByteReceiveStream(self._server)
        try:
            response = await self._head(source)
        except ProxyRefusal as refusal:
            self.refusal = refusal
            return
        # From here on no other answer can be sent; a client that gets less than was announced notices.
        self.answered = True
        with contextlib.suppress(ProxyRefusal, *GONE):
            await self._to_client(response.encode())
            await copy_body(source, response.body, self._to_client)

    async def _head(self, source: BufferedByteReceiveStream) -> ProxyResponse:
        target = self._request.target
        try:
            for _ in range(_INTERIM):
                head = await source.receive_until(b"\r\n\r\n", HEAD_LIMIT)
                response = parse_response(head, self._request.method)
                if response.status >= 200:
                    return response
                self.clock.touch()
                if response.status == 101:
                    break
        except anyio.DelimiterNotFound:
            raise ProxyRefusal(502, f"The header of the answer of {target} is too large") from None
        except GONE:
            raise ProxyRefusal(502, f"{target} has closed the connection without an answer") from None
        raise ProxyRefusal(502, f"{target} speaks another protocol")

    async def _to_server(self, piece: bytes) -> None:
        try:
            await self._server.send(piece)
        except GONE:
            raise _ServerGone from None
        self.clock.touch()

    async def _to_client(self, piece: bytes) -> None:
        await self._client.send(piece)
        self.clock.touch()
