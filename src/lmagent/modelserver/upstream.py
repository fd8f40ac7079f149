"""Upstream: requests to what runs a model.

httpcore makes the connections and reads the head of an answer. The body of a stream is taken from the connection
itself: through httpcore's parser and anyio's socket an event costs three times as much (bench/relay.py), and all that
has arrived in one turn of the loop is to go on in one piece. Such a connection is closed behind its stream; others are
kept and used again.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from typing import Any, cast

import anyio
import httpcore
from msgspec import Struct

from lmagent.modelserver.errors import Lost

CONNECT = 10.0
"""Seconds to open a connection."""

HELD = 1024 * 1024
"""Bytes that may wait for a slow client before the upstream is asked to wait too."""

MAX_ANSWER = 256 * 1024 * 1024
"""Bytes of an answer that is read as a whole."""


class BrokenOff(Exception):
    """A body ended before its end."""


class Wire(asyncio.Protocol, httpcore.AsyncNetworkStream):
    """A connection without TLS that keeps what has arrived until somebody takes it.

    While httpcore reads the head of an answer, the bytes are noted, so that what follows the head can be taken over
    from there.
    """

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._held: list[bytes] = []
        self._size = 0
        self._paused = False
        self._ended = False
        self._waiter: asyncio.Future[None] | None = None
        self._head: bytearray | None = bytearray()
        self._free = anyio.Event()
        self._free.set()

    def connection_made(self, transport: Any) -> None:
        """The connection is there."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Keep it, and wake the reader at the loop's next turn: what comes in the meantime goes with it."""
        self._held.append(data)
        self._size += len(data)
        if self._size > HELD and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> bool:
        """The other side has said all."""
        self._ended = True
        self._wake()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._ended = True
        self._free.set()
        self._wake()

    def pause_writing(self) -> None:
        """The other side does not read."""
        self._free = anyio.Event()

    def resume_writing(self) -> None:
        """It reads again."""
        self._free.set()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def take(self) -> bytes:
        """All that has arrived; waits for some, and is empty at the end."""
        while not self._held:
            if self._ended:
                return b""
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        data = self._held[0] if len(self._held) == 1 else b"".join(self._held)
        self._held.clear()
        self._size = 0
        if self._paused and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
        return data

    def take_over(self) -> bytes:
        """What has arrived behind the head; from now on `take` has the rest."""
        head, self._head = self._head, None
        return bytes(head or b"").partition(b"\r\n\r\n")[2]

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """See httpcore. There is no time limit: a prompt takes as long as it takes, and who dies closes."""
        data = await self.take()
        if self._head is not None:
            self._head += data
            if len(self._head) > HELD:  # an answer that is read as a whole
                self._head = None
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """See httpcore."""
        if self._transport is None or self._transport.is_closing():
            raise httpcore.WriteError("the connection is closed")
        self._head = bytearray()
        self._transport.write(buffer)
        await self._free.wait()

    async def aclose(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    def get_extra_info(self, info: str) -> Any:
        """See httpcore: an idle connection on which something arrives has been closed by the other side."""
        return bool(self._held or self._ended) if info == "is_readable" else None

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.AsyncNetworkStream:
        """Never asked for: addresses with TLS go the ordinary way."""
        raise httpcore.ConnectError("this connection has no TLS")


class Wires(httpcore.AsyncNetworkBackend):
    """Opens connections of that kind."""

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """See httpcore."""
        try:
            with anyio.fail_after(timeout):
                transport, wire = await asyncio.get_running_loop().create_connection(Wire, host, port)
        except TimeoutError as error:
            raise httpcore.ConnectTimeout(str(error)) from error
        except OSError as error:
            raise httpcore.ConnectError(str(error)) from error
        known: socket.socket = transport.get_extra_info("socket")
        known.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # notices a host that vanished
        return wire

    async def sleep(self, seconds: float) -> None:
        """See httpcore."""
        await anyio.sleep(seconds)


class Answer(Struct, frozen=True):
    """An answer whose body is still coming.

    Attributes:
        status: HTTP status.
        content_type: as the engine sent it.
        raw: httpcore's answer.
        chunked: the body comes in chunks.
    """

    status: int
    content_type: bytes
    raw: httpcore.Response
    chunked: bool

    async def whole(self) -> bytes:
        """All of the body.

        Raises:
            BrokenOff: it ended before its end, or is larger than `MAX_ANSWER`.
        """
        body = bytearray()
        async for piece in _plain(self.raw):
            body += piece
            if len(body) > MAX_ANSWER:
                raise BrokenOff(f"the answer is larger than {MAX_ANSWER} bytes")
        return bytes(body)

    def pieces(self) -> AsyncIterator[bytes]:
        """The body as it comes, what arrived together in one piece.

        Raises:
            BrokenOff: it ended before its end.
        """
        extensions = cast("Mapping[str, Any]", self.raw.extensions)  # pyright: ignore[reportUnknownMemberType]
        wire = extensions.get("network_stream")
        return _taken(wire) if self.chunked and isinstance(wire, Wire) else _plain(self.raw)

    async def aclose(self) -> None:
        """Give the connection back; close it where the body was not read to its end."""
        await self.raw.aclose()


class Upstream:
    """The connections to all engines."""

    def __init__(self) -> None:
        self._plain = httpcore.AsyncConnectionPool(
            max_connections=10_000, max_keepalive_connections=32, keepalive_expiry=30, network_backend=Wires()
        )
        self._tls: httpcore.AsyncConnectionPool | None = None

    async def send(self, method: str, url: str, body: bytes, key: str = "") -> Answer:
        """Send a request and return as soon as the head of the answer is there.

        Raises:
            Lost: nobody is there, or it went away.
        """
        host = url.split("/", 3)[2]
        headers = [(b"Host", host.encode()), (b"Accept-Encoding", b"identity"), (b"User-Agent", b"lmagent")]
        if key:
            headers.append((b"Authorization", b"Bearer " + key.encode()))
        if method == "POST":
            headers += [(b"Content-Type", b"application/json"), (b"Content-Length", b"%d" % len(body))]
        request = httpcore.Request(
            method, url, headers=headers, content=body, extensions={"timeout": {"connect": CONNECT}}
        )
        pool = self._pool(url)
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
        chunked = b"chunked" in fields.get(b"transfer-encoding", b"").lower()
        return Answer(raw.status, fields.get(b"content-type", b"application/json"), raw, chunked)

    async def ask(self, method: str, url: str, body: bytes, key: str = "") -> tuple[int, bytes]:
        """(status, body) of a short answer.

        Raises:
            Lost: nobody is there, or it went away.
        """
        answer = await self.send(method, url, body, key)
        try:
            return answer.status, await answer.whole()
        except BrokenOff as error:
            raise Lost(f"the answer broke off: {error}", status=502, code="lost") from error
        finally:
            await answer.aclose()

    async def aclose(self) -> None:
        """Close all connections."""
        await self._plain.aclose()
        if self._tls is not None:
            await self._tls.aclose()

    def _pool(self, url: str) -> httpcore.AsyncConnectionPool:
        if url.startswith("http://"):
            return self._plain
        if self._tls is None:
            self._tls = httpcore.AsyncConnectionPool(max_connections=1000, keepalive_expiry=30)
        return self._tls


async def _plain(raw: httpcore.Response) -> AsyncGenerator[bytes]:
    try:
        async for piece in raw.aiter_stream():
            yield piece
    except (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError) as error:
        raise BrokenOff(str(error) or type(error).__name__) from error


async def _taken(wire: Wire) -> AsyncGenerator[bytes]:
    rest = wire.take_over()
    while True:
        piece, rest, ended = dechunk(rest)
        if piece:
            yield piece
        if ended:
            return
        more = await wire.take()
        if not more:
            raise BrokenOff("the connection was closed in the middle of the answer")
        rest = rest + more if rest else more


def dechunk(data: bytes) -> tuple[bytes, bytes, bool]:
    """(body, rest, ended) of what arrived: whole chunks, joined (RFC 9112 section 7.1).

    Raises:
        BrokenOff: it is not in chunks.
    """
    found: list[bytes] = []
    at = 0
    while (line := data.find(b"\r\n", at)) >= 0:
        size_text = data[at:line].partition(b";")[0].strip()
        try:
            size = int(size_text, 16)
        except ValueError:
            raise BrokenOff("the answer is not in chunks") from None
        if size <= 0:
            return b"".join(found), b"", True
        end = line + 2 + size
        if len(data) < end + 2:
            break
        found.append(data[line + 2 : end])
        at = end + 2
    return found[0] if len(found) == 1 else b"".join(found), data[at:] if at else data, False
