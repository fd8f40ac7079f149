"""The body of a stream, taken from the connection itself."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from contextlib import aclosing
from pathlib import Path

import anyio
import anyio.abc
import httpcore
import pytest
from anyio.streams.tls import TLSListener

from lmagent.core.errors import ungrouped
from lmagent.providers.transport import HttpTransport, Timeouts, TransportError
from lmagent.providers.wire import SETTLED, Chunks, Wires, body_of, wire_of

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
NONE: dict[str, str] = {}


class Raw:
    """Answers each request with the same pieces of bytes, each sent by itself, and counts connections."""

    def __init__(self, *pieces: bytes, closes: bool = False, between: float = 0.005) -> None:
        self.connections = 0
        self._pieces = pieces
        self._closes = closes
        self._between = between

    async def serve(self, stream: anyio.abc.ByteStream) -> None:
        self.connections += 1
        async with stream:
            try:
                while b"\r\n\r\n" in await stream.receive():
                    for piece in self._pieces:
                        await stream.send(piece)
                        await anyio.sleep(self._between)
                    if self._closes:
                        return
            except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
                return


async def read(raw: Raw, *, times: int = 1, timeouts: Timeouts = Timeouts()) -> list[list[bytes]]:  # noqa: B008
    """The bodies of some answers, in the pieces in which they came."""
    bodies: list[list[bytes]] = []
    transport = HttpTransport({})
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(anyio.abc.SocketAttribute.local_port)
    with ungrouped():
        async with listener, anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, raw.serve)
            try:
                for _ in range(times):
                    response = await transport.send("GET", f"http://127.0.0.1:{port}/", NONE, b"", timeouts)
                    try:
                        async with aclosing(response.chunks) as chunks:  # type: ignore[type-var]
                            bodies.append([chunk async for chunk in chunks])
                    finally:
                        await response.aclose()
            finally:
                await transport.aclose()
                tasks.cancel_scope.cancel()
    return bodies


@pytest.mark.parametrize("size", [1, 2, 5, 1000])
def test_chunks_are_joined_however_they_arrive(size: int) -> None:
    body = b"5\r\nhello\r\n1;x=y\r\n \r\n5\r\nworld\r\n0\r\nTrailer: x\r\n\r\n"
    chunks, found = Chunks(), b""
    for at in range(0, len(body), size):
        assert not chunks.ended
        found += chunks.feed(body[at : at + size])
    assert (found, chunks.ended) == (b"hello world", True)


@pytest.mark.parametrize("body", [b"no chunk\r\n", b"-1\r\nx", b"0x1\r\nx", b"1_0\r\n", b"1" * 70_000])
def test_what_is_not_in_chunks_is_refused(body: bytes) -> None:
    with pytest.raises(httpcore.RemoteProtocolError):
        Chunks().feed(body)


def test_a_part_of_a_chunk_is_given_before_the_rest_of_it_comes() -> None:
    assert Chunks().feed(b"ff\r\nhel") == b"hel"


def test_a_connection_is_used_again_when_its_stream_was_read_to_the_end() -> None:
    async def go() -> None:
        raw = Raw(HEAD + b"3\r\nab", b"c\r\n", b"0\r\n\r\n")
        assert [b"".join(body) for body in await read(raw, times=3)] == [b"abc"] * 3
        assert raw.connections == 1

    anyio.run(go)


@pytest.mark.parametrize("cut", range(1, len(HEAD), 7))
def test_a_head_that_comes_in_two_parts_leaves_the_body_whole(cut: int) -> None:
    async def go() -> None:
        raw = Raw(HEAD[:cut], HEAD[cut:] + b"3\r\nabc\r\n0\r\n\r\n")
        assert [b"".join(body) for body in await read(raw, times=2)] == [b"abc"] * 2

    anyio.run(go)


def test_an_interim_answer_before_the_head_is_passed_over() -> None:
    async def go() -> None:
        raw = Raw(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + HEAD + b"3\r\nabc\r\n0\r\n\r\n")
        assert [b"".join(body) for body in await read(raw)] == [b"abc"]

    anyio.run(go)


def test_a_stream_that_ends_early_is_a_lost_connection() -> None:
    async def go() -> None:
        with pytest.raises(TransportError) as caught:
            await read(Raw(HEAD + b"3\r\nabc\r\n", closes=True))
        assert caught.value.kind == "lost"

    anyio.run(go)


def test_a_stream_that_falls_silent_is_given_up() -> None:
    async def go() -> None:
        with pytest.raises(TransportError) as caught:
            await read(Raw(HEAD + b"3\r\nabc\r\n"), timeouts=Timeouts(first_byte=30, idle=0.2))
        assert caught.value.kind == "idle"

    anyio.run(go)


def test_a_long_stream_is_read_in_pauses_and_whole() -> None:
    async def go() -> None:
        pieces = [b"1\r\n%d\r\n" % (number % 10) for number in range(400)]
        [body] = await read(Raw(HEAD, *pieces, b"0\r\n\r\n", between=SETTLED / 100))
        assert b"".join(body) == b"0123456789" * 40
        assert len(body) < 300, "one piece a pause, not one a chunk"

    anyio.run(go)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed: it makes the certificate")
def test_a_stream_over_tls_is_read_the_same_way_and_its_connection_used_again(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    raw = Raw(HEAD + b"3\r\nab", b"c\r\n", b"0\r\n\r\n")

    async def go() -> None:
        plain = await anyio.create_tcp_listener(local_host="127.0.0.1")
        port = plain.extra(anyio.abc.SocketAttribute.local_port)
        listener = TLSListener(plain, context)
        trusting = ssl.create_default_context(cafile=certificate)
        pool = httpcore.AsyncConnectionPool(ssl_context=trusting, network_backend=Wires())
        with ungrouped():
            async with listener, anyio.create_task_group() as tasks:
                tasks.start_soon(listener.serve, raw.serve)
                for _ in range(2):
                    request = httpcore.Request("GET", f"https://localhost:{port}/", headers=[(b"Host", b"localhost")])
                    answer = await pool.handle_async_request(request)
                    wire = wire_of(answer)
                    assert wire is not None
                    assert b"".join([piece async for piece in body_of(answer, wire)]) == b"abc"
                    await answer.aclose()
                await pool.aclose()
                tasks.cancel_scope.cancel()
        assert raw.connections == 1

    anyio.run(go)
