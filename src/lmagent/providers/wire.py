"""Wire: a connection under httpcore that passes the body of a stream around httpcore's parser.

httpcore makes and keeps the connections, and reads the head of an answer. The body of a chunked answer is taken from
the connection itself: through httpcore's parser and anyio's socket an event costs three times as much (bench/relay.py).
After the body, httpcore gets the end that it waits for and keeps the connection.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from typing import Any, cast

import anyio
import httpcore

HELD = 1024 * 1024
"""Bytes that may wait for a slow reader before the server has to wait too."""

TURN = 0.025
"""Pauses end at multiples of these seconds, so that pausing streams are read in the same turns of the loop."""

SETTLED = 1.0
"""Seconds after which a stream is read with pauses; a shorter one is never delayed."""

EYEBALLS = 0.25
"""Seconds after which the next address of a host is tried in parallel (RFC 8305)."""

LONGEST_LINE = 65_536
"""Bytes of a line between two chunks."""

_HEAD_END = re.compile(rb"\n\r?\n")
_INTERIM = re.compile(rb"HTTP/\d\.\d 1(?!01)\d\d")
_SIZE = re.compile(rb"[0-9A-Fa-f]{1,16}")
_LAST_CHUNK = b"0\r\n\r\n"


class Wire(asyncio.Protocol, httpcore.AsyncNetworkStream):
    """A connection that keeps the bytes that have arrived until they are taken."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._held: list[bytes] = []
        self._size = 0
        self._is_paused = False
        self._is_over = False
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._limit = 0.0
        self._since = 0.0
        self._watch: asyncio.TimerHandle | None = None
        self._head: bytes | None = b""
        self._free = anyio.Event()
        self._free.set()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Keep the data, and wake the reader at the loop's next turn, together with data that arrives until then."""
        self._held.append(data)
        self._size += len(data)
        if self._size > HELD and not self._is_paused and self._transport is not None:
            self._is_paused = True
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> bool:
        self._end(None)
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._free.set()
        self._end(exc)

    def pause_writing(self) -> None:
        self._free = anyio.Event()

    def resume_writing(self) -> None:
        self._free.set()

    def _end(self, error: Exception | None) -> None:
        self._is_over = True
        self._error = self._error or error
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        self._wake()

    async def take(self, limit: float | None = None) -> bytes:
        """Return all data that has arrived; wait for some; return empty bytes at the end.

        Args:
            limit: seconds of silence.

        Raises:
            httpcore.ReadTimeout: no data came for so long.
            httpcore.ReadError: the connection broke.
        """
        if not (self._held or self._is_over):
            await self._wait(limit)
        if self._held:
            return self._all()
        if self._error is not None:
            raise httpcore.ReadError(str(self._error)) from self._error
        return b""

    async def _wait(self, limit: float | None) -> None:
        waiter = self._waiter = self._loop.create_future()
        if limit is not None:
            self._limit, self._since = limit, self._loop.time()
            if self._watch is None or self._watch.when() > self._since + limit:
                self._look_out(limit)
        try:
            await waiter
        finally:
            self._waiter = None

    def rest(self, seconds: float) -> None:
        """Leave arriving data to the system for a while: a wake-up for each arrival costs more."""
        if self._transport is None or self._held:
            return
        self._transport.pause_reading()
        until = round((self._loop.time() + seconds) / TURN) * TURN
        self._loop.call_at(until, self._transport.resume_reading)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _look_out(self, seconds: float) -> None:
        if self._watch is not None:
            self._watch.cancel()
        self._watch = self._loop.call_later(seconds, self._give_up)

    def _give_up(self) -> None:
        """End a read to which no data came. One timer serves all reads: one for each would cost more."""
        self._watch = None
        if self._waiter is None or self._waiter.done() or self._held:
            return
        left = self._since + self._limit - self._loop.time()
        if left > 0.001:
            self._look_out(left)
        else:
            self._waiter.set_exception(httpcore.ReadTimeout())

    def _all(self) -> bytes:
        data = self._held[0] if len(self._held) == 1 else b"".join(self._held)
        self._held.clear()
        self._size = 0
        if self._is_paused and self._transport is not None:
            self._is_paused = False
            self._transport.resume_reading()
        return data

    def give_back(self, data: bytes) -> None:
        if data:
            self._held.insert(0, data)
            self._size += len(data)

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """See httpcore. Until it asks for the body, it gets only the head of an answer."""
        data = await self.take(timeout)
        if self._head is None:
            return data
        known = self._head[-3:]
        end = _HEAD_END.search(known + data)
        self._head += data
        if end is None:
            if len(self._head) > HELD:
                self._head = None  # no head: its parser reports that
            return data
        size = end.end() - len(known)
        self._head = b"" if _INTERIM.match(self._head) else None
        self.give_back(data[size:])
        return data[:size]

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        if not buffer:
            return
        if self._transport is None or self._transport.is_closing():
            raise httpcore.WriteError("the connection is closed")
        self._head = b""
        self._transport.write(buffer)
        if not self._free.is_set():
            try:
                with anyio.fail_after(timeout):
                    await self._free.wait()
            except TimeoutError as error:
                raise httpcore.WriteTimeout from error

    async def aclose(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def get_extra_info(self, info: str) -> Any:
        """See httpcore: an idle connection with arriving data has been closed by the other side."""
        if info == "is_readable":
            return bool(self._held or self._is_over)
        return self._transport.get_extra_info(info) if self._transport is not None else None

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.AsyncNetworkStream:
        assert self._transport is not None
        try:
            with anyio.fail_after(timeout):
                upgraded = await self._loop.start_tls(
                    self._transport, self, ssl_context, server_hostname=server_hostname
                )
        except TimeoutError as error:
            raise httpcore.ConnectTimeout(str(error)) from error
        except OSError as error:  # of TLS too
            raise httpcore.ConnectError(str(error)) from error
        if upgraded is None:
            raise httpcore.ConnectError("the other side closed the connection")
        self._transport = upgraded
        return self


def _has_many(host: str) -> bool:
    """Return whether a host may have several addresses, of which one may be unreachable."""
    return host != "localhost" and ":" not in host and not host.replace(".", "").isdigit()


class Wires(httpcore.AsyncNetworkBackend):
    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        loop = asyncio.get_running_loop()
        try:
            with anyio.fail_after(timeout):
                delay = EYEBALLS if _has_many(host) else None
                transport, wire = await loop.create_connection(Wire, host, port, happy_eyeballs_delay=delay)
        except TimeoutError as error:
            raise httpcore.ConnectTimeout(str(error)) from error
        except OSError as error:
            raise httpcore.ConnectError(str(error)) from error
        known: socket.socket = transport.get_extra_info("socket")
        known.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # notices a host that vanished
        return wire

    async def sleep(self, seconds: float) -> None:
        await anyio.sleep(seconds)


class Chunks:
    """Takes a body out of its chunks (RFC 9112, section 7.1). `ended`: the body is complete."""

    def __init__(self) -> None:
        self.ended = False
        self._line = b""
        self._left = 0
        self._is_last = False

    def feed(self, data: bytes) -> bytes:
        """Return the part of the body in some bytes. Raise httpcore.RemoteProtocolError if they are not chunked."""
        if self._line:
            data, self._line = self._line + data, b""
        found: list[bytes] = []
        at = 0
        while not self.ended:
            if self._left:
                part = data[at : at + self._left]
                at += len(part)
                self._left -= len(part)
                found.append(part)
            end = data.find(b"\n", at)
            if end < 0:
                self._line = data[at:]
                break
            if (line := data[at:end].strip()) or self._is_last:
                self._read_line(line)
            at = end + 1
        if len(self._line) > LONGEST_LINE:
            raise httpcore.RemoteProtocolError("a line between two chunks of the answer does not end")
        return found[0] if len(found) == 1 else b"".join(found)

    def _read_line(self, line: bytes) -> None:
        """Read the size of a chunk, or a line of the trailer, which an empty line ends."""
        if self._is_last:
            self.ended = not line
        else:
            size = _SIZE.fullmatch(line.partition(b";")[0].rstrip())
            if size is None:
                raise httpcore.RemoteProtocolError("the answer is not in chunks")
            self._left = int(size[0], 16)
            self._is_last = not self._left


def wire_of(answer: httpcore.Response) -> Wire | None:
    """Return the connection from which the body of an answer can be taken; None if httpcore has to read it."""
    extensions = cast("Mapping[str, Any]", answer.extensions)  # pyright: ignore[reportUnknownMemberType]
    wire = extensions.get("network_stream")
    coding = b"".join(value for name, value in answer.headers if name.lower() == b"transfer-encoding")
    return wire if isinstance(wire, Wire) and coding.strip().lower() == b"chunked" else None


async def body_of(
    answer: httpcore.Response,
    wire: Wire,
    limits: tuple[float | None, float | None] = (None, None),
    pause: Callable[[], float] = lambda: 0.0,
) -> AsyncGenerator[bytes]:
    """Yield the body of an answer as it arrives; data that arrived together is one piece.

    Args:
        answer: the answer, of which httpcore has read the head.
        limits: seconds of silence: before the first piece, and between two.
        pause: seconds between two pieces of a settled stream.

    Raises:
        httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError: it ended before its end.
    """
    chunks, limit, begun = Chunks(), limits[0], 0.0
    while not chunks.ended:
        data = await wire.take(limit)
        if not data:
            raise httpcore.RemoteProtocolError("the connection was closed in the middle of the answer")
        if piece := chunks.feed(data):
            yield piece
            now = time.monotonic()
            begun, limit = begun or now, limits[1]
            if now - begun > SETTLED and not chunks.ended and (seconds := pause()):
                wire.rest(seconds)
    wire.give_back(_LAST_CHUNK)
    async for _ in answer.aiter_stream():
        pass
