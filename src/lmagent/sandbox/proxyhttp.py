"""Reads HTTP/1.1 messages strictly and writes them anew, so that the server reads exactly the message that was allowed.

A message that two programs could read differently is refused: one with two lengths, a bare line feed, a folded header,
a coding other than `chunked`. Bodies are read by their framing and framed again; chunk extensions and trailers are
dropped. The reader is our own because h11 (of uvicorn and httpcore) is made to be lenient: it takes folded headers,
bare line feeds, a repeated length, and a length beside chunks.

Sources: RFC 9110 §7.6 (hop-by-hop fields), RFC 9112 §3.2, §6, §7.1, §11.2.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Literal

import anyio
from anyio.streams.buffered import BufferedByteReceiveStream
from msgspec import Struct

from lmagent.sandbox.hosts import Target, parse_target

HEAD_LIMIT = 64 * 1024
PIECE = 64 * 1024
_HEADERS = 200
_LINE_LIMIT = 4096

Send = Callable[[bytes], Awaitable[None]]
Header = tuple[str, str]
Framing = Literal["length", "chunked", "close"]

_TOKEN = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]"
_REQUEST = re.compile(rf"({_TOKEN}{{1,32}}) ([\x21-\x7e]+) HTTP/1\.([01])", re.ASCII)
_STATUS = re.compile(r"HTTP/1\.[01] ([1-5][0-9]{2})(?: ([^\x00-\x08\x0a-\x1f\x7f]*))?", re.ASCII)
_HEADER = re.compile(rf"({_TOKEN}{{1,256}}):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*)", re.ASCII)
_ABSOLUTE = re.compile(r"http://([^/?#]*)((?:[/?][^#]*)?)", re.ASCII | re.IGNORECASE)
_LENGTH = re.compile(r"[0-9]{1,15}", re.ASCII)
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,12})[ \t]*(?:;[^\x00-\x08\x0a-\x1f\x7f]*)?")
_HOP = {
    *("connection", "proxy-connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "expect"),
    *("content-length", "host", "http2-settings"),
    *("proxy-authorization", "proxy-authenticate", "proxy-authentication-info"),
}
"""Fields that are for one hop only, or that the proxy writes itself."""


class ProxyRefusal(Exception):
    """A request that the proxy answers itself; the first line of `text` is also the reason."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


class Body(Struct, frozen=True):
    """The length of a body: in bytes, by chunks, or up to the end of the connection."""

    framing: Framing = "length"
    length: int = 0


class ProxyRequest(Struct, frozen=True):
    """A request to the proxy.

    Attributes:
        path: path and query; empty for a tunnel.
        minor: 0 or 1, of HTTP/1.x.
        headers: the fields that are passed on.
        expects: it waits for "100 Continue" before it sends its body.
    """

    method: str
    target: Target
    path: str
    minor: int
    headers: tuple[Header, ...] = ()
    body: Body = Body()
    expects: bool = False
    tunnel: bool = False

    def encode(self) -> bytes:
        """Return the head for the server; its host is that of the target, not the one that the client sent."""
        host = str(self.target).removesuffix(":80")
        lines = [f"{self.method} {self.path} HTTP/1.{self.minor}", f"Host: {host}"]
        needs_length = self.body.length or self.method in ("POST", "PUT", "PATCH")
        return _encode(
            lines, self.headers, _framing(self.body) if self.body.framing != "length" or needs_length else []
        )


class ProxyResponse(Struct, frozen=True):
    """A server's answer, with the headers that are passed on.

    An answer without a body (to HEAD, or 304) may have a `length` as well.
    """

    status: int
    reason: str
    headers: tuple[Header, ...]
    body: Body
    length: int | None = None

    def encode(self) -> bytes:
        framing = _framing(self.body)
        if self.body == Body():
            framing = [] if self.length is None or self.status == 204 else [f"Content-Length: {self.length}"]
        return _encode([f"HTTP/1.1 {self.status} {self.reason}"], self.headers, framing)


def parse_request(head: bytes) -> ProxyRequest:
    """Read a request from its head, without the empty line.

    Raises:
        Refusal: it is malformed, or two programs could read it differently.
    """
    first, headers = _parse(head)
    match = _REQUEST.fullmatch(first)
    if match is None:
        raise ProxyRefusal(400, "This is an HTTP/1.1 proxy, and that is no request to one.")
    method, target, minor = match[1], match[2], int(match[3])
    body = _body(headers, missing=Body())
    if method == "CONNECT":
        if any(name.lower() in ("content-length", "transfer-encoding") for name, _ in headers):
            raise ProxyRefusal(400, "A request for a tunnel has no body.")
        return ProxyRequest(method, _target(target, None), "", minor, tunnel=True)
    absolute = _ABSOLUTE.fullmatch(target)
    if absolute is None:
        raise ProxyRefusal(400, "The target must be http://host/path, or host:port with CONNECT.")
    if body.framing == "chunked" and minor == 0:
        raise ProxyRefusal(400, "HTTP/1.0 knows no chunks.")
    path = absolute[2] if absolute[2].startswith("/") else f"/{absolute[2]}"
    if method == "OPTIONS" and not absolute[2]:
        path = "*"
    expects = minor == 1 and any(name.lower() == "expect" for name, _ in headers)
    return ProxyRequest(method, _target(absolute[1], 80), path, minor, _end_to_end(headers), body, expects)


def parse_response(head: bytes, method: str) -> ProxyResponse:
    """Read an answer from its head, as `parse_request`."""
    try:
        first, headers = _parse(head)
        match = _STATUS.fullmatch(first)
        if match is None:
            raise ProxyRefusal(502, "The server's status line is malformed.")
        body = _body(headers, missing=Body("close"))
    except ProxyRefusal as refusal:
        raise ProxyRefusal(502, f"The server's answer is malformed: {refusal.text}") from None
    status, length = int(match[1]), body.length if body.framing == "length" else None
    if method == "HEAD" or status < 200 or status in (204, 304):
        body = Body()
    return ProxyResponse(status, match[2] or "", _end_to_end(headers), body, length)


def simple_response(status: int, reason: str, text: str) -> bytes:
    body = text.encode()
    fields = (("Content-Type", "text/plain; charset=utf-8"), ("Via", "1.1 lmagent"))
    line = f"HTTP/1.1 {status} {reason}".encode("ascii", "replace").decode()
    return _encode([line], fields, [f"Content-Length: {len(body)}"]) + body


async def copy_body(source: BufferedByteReceiveStream, body: Body, send: Send) -> None:
    """Read a body by its framing and send it piece by piece, framed the same way.

    Raises:
        Refusal: its chunks are malformed.
        anyio.IncompleteRead, anyio.EndOfStream: it broke off.
    """
    if body.framing == "chunked":
        await _copy_chunks(source, send)
    elif body.framing == "length":
        await _copy_exactly(source, body.length, send)
    else:
        while True:
            try:
                piece = await source.receive(PIECE)
            except anyio.EndOfStream:
                return
            await send(piece)


async def _copy_exactly(source: BufferedByteReceiveStream, length: int, send: Send) -> None:
    while length:
        piece = await source.receive(min(PIECE, length))
        length -= len(piece)
        await send(piece)


async def _copy_chunks(source: BufferedByteReceiveStream, send: Send) -> None:
    async def send_chunk(piece: bytes) -> None:
        await send(b"%x\r\n%b\r\n" % (len(piece), piece))

    while True:
        match = _CHUNK.fullmatch(await _line(source))
        if match is None:
            raise ProxyRefusal(400, "A chunk is malformed.")
        size = int(match[1], 16)
        if not size:
            break
        await _copy_exactly(source, size, send_chunk)
        if await source.receive_exactly(2) != b"\r\n":
            raise ProxyRefusal(400, "A chunk is not as long as it says.")
    for _ in range(_HEADERS):
        if not await _line(source):
            await send(b"0\r\n\r\n")
            return
    raise ProxyRefusal(400, "There are too many trailers.")


async def _line(source: BufferedByteReceiveStream) -> bytes:
    try:
        return await source.receive_until(b"\r\n", _LINE_LIMIT)
    except anyio.DelimiterNotFound:
        raise ProxyRefusal(400, "A line of a chunked body is too long.") from None


def _parse(head: bytes) -> tuple[str, list[Header]]:
    first, *lines = head.decode("latin-1").split("\r\n")
    if len(lines) > _HEADERS:
        raise ProxyRefusal(431, "There are too many header fields.")
    headers: list[Header] = []
    for line in lines:
        match = _HEADER.fullmatch(line)
        if match is None:
            raise ProxyRefusal(400, "A header field is malformed.")
        headers.append((match[1], match[2].rstrip(" \t")))
    return first, headers


def _body(headers: Iterable[Header], missing: Body) -> Body:
    lengths = [value for name, value in headers if name.lower() == "content-length"]
    codings = [value for name, value in headers if name.lower() == "transfer-encoding"]
    if len(lengths) + len(codings) > 1:
        raise ProxyRefusal(400, "The message has more than one length.")
    if codings:
        if codings[0].lower() != "chunked":
            raise ProxyRefusal(400, "The only transfer coding is chunked.")
        return Body("chunked")
    if not lengths:
        return missing
    if not _LENGTH.fullmatch(lengths[0]):
        raise ProxyRefusal(400, "The length is not a number.")
    return Body("length", int(lengths[0]))


def _end_to_end(headers: list[Header]) -> tuple[Header, ...]:
    named = {
        option.strip().lower() for name, value in headers if name.lower() == "connection" for option in value.split(",")
    }
    return tuple((name, value) for name, value in headers if name.lower() not in _HOP | named)


def _target(authority: str, default_port: int | None) -> Target:
    try:
        return parse_target(authority, default_port)
    except ValueError as error:
        raise ProxyRefusal(400, f"The target is refused: {error}.") from None


def _framing(body: Body) -> list[str]:
    if body.framing == "chunked":
        return ["Transfer-Encoding: chunked"]
    return [f"Content-Length: {body.length}"] if body.framing == "length" else []


def _encode(lines: list[str], headers: Iterable[Header], framing: list[str]) -> bytes:
    fields = [f"{name}: {value}" for name, value in headers]
    return "\r\n".join([*lines, *fields, *framing, "Connection: close", "", ""]).encode("latin-1")
