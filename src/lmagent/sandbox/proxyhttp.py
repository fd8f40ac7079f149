"""Reads HTTP/1.1 requests strictly and writes them anew, so that the server reads exactly the request that was allowed.

A request that two programs could read differently is refused: one with two lengths, a bare line feed, a folded header.
So is a body in chunks: it has to have a length. The reader is our own because h11 (of uvicorn and httpcore) is made to
be lenient: it takes folded headers, bare line feeds and a repeated length. Answers pass unread: only the command reads
them.

Each side sends only when the other has taken the piece before, so memory does not depend on sizes.

Sources: RFC 9110 §7.6 (hop-by-hop fields), RFC 9112 §3.2, §6, §11.2.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import anyio
from anyio.abc import SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream
from msgspec import Struct

from lmagent.sandbox.hosts import Target, parse_target

HEAD_LIMIT = 64 * 1024
PIECE = 64 * 1024
_HEADERS = 200

Header = tuple[str, str]

_TOKEN = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]"
_REQUEST = re.compile(rf"({_TOKEN}{{1,32}}) ([\x21-\x7e]+) HTTP/1\.([01])", re.ASCII)
_HEADER = re.compile(rf"({_TOKEN}{{1,256}}):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*)", re.ASCII)
_ABSOLUTE = re.compile(r"http://([^/?#]*)((?:[/?][^#]*)?)", re.ASCII | re.IGNORECASE)
_LENGTH = re.compile(r"[0-9]{1,15}", re.ASCII)
_HOP = {
    *("connection", "proxy-connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "expect"),
    *("content-length", "host", "http2-settings"),
    *("proxy-authorization", "proxy-authenticate", "proxy-authentication-info"),
}
"""Fields that are for one hop only, or that the proxy writes itself."""

GONE = (
    anyio.BrokenResourceError,
    anyio.ClosedResourceError,
    anyio.EndOfStream,
    anyio.IncompleteRead,
    OSError,
)
"""The other side has closed, reset or vanished."""


class ProxyRefusal(Exception):
    """A request that the proxy answers itself; the first line of `text` is also the reason."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text

    def encode(self) -> bytes:
        body = self.text.rstrip("\n").encode() + b"\n"
        reason = self.text.partition("\n")[0][:200].encode("ascii", "replace").decode()
        fields = [("Content-Type", "text/plain; charset=utf-8"), ("Via", "1.1 lmagent"), _length(len(body))]
        return _encode([f"HTTP/1.1 {self.status} {reason}"], fields) + body


class ProxyRequest(Struct, frozen=True):
    """A request to the proxy.

    Attributes:
        path: path and query; empty for a tunnel.
        headers: the fields that are passed on.
        length: of the body.
        expects: it waits for "100 Continue" before it sends its body.
    """

    method: str
    target: Target
    path: str
    headers: tuple[Header, ...] = ()
    length: int = 0
    expects: bool = False

    @property
    def is_tunnel(self) -> bool:
        return self.method == "CONNECT"

    def encode(self) -> bytes:
        """Return the head for the server; its host is that of the target, not the one that the client sent."""
        host = str(self.target).removesuffix(":80")
        framing = [_length(self.length)] if self.length or self.method in ("POST", "PUT", "PATCH") else []
        return _encode([f"{self.method} {self.path} HTTP/1.1", f"Host: {host}"], [*self.headers, *framing])


def parse_request(head: bytes) -> ProxyRequest:
    """Read a request from its head, without the empty line; raises ProxyRefusal."""
    first, *lines = head.decode("latin-1").split("\r\n")
    if len(lines) > _HEADERS:
        raise ProxyRefusal(431, "There are too many header fields.")
    fields = [_HEADER.fullmatch(line) for line in lines]
    headers = [(field[1], field[2].rstrip(" \t")) for field in fields if field]
    match = _REQUEST.fullmatch(first)
    # Python asks for a tunnel in HTTP/1.0 before 3.12, and so does pip.
    if match is None or not all(fields) or (match[3] == "0" and match[1] != "CONNECT"):
        raise ProxyRefusal(400, "This is an HTTP/1.1 proxy, and that is no request to one.")
    method, target = match[1], match[2]
    names = {name.lower() for name, _ in headers}
    length = _body(headers)
    if method == "CONNECT":
        if names & {"content-length", "transfer-encoding"}:
            raise ProxyRefusal(400, "A request for a tunnel has no body.")
        return ProxyRequest(method, _target(target, None), "")
    absolute = _ABSOLUTE.fullmatch(target)
    if absolute is None:
        raise ProxyRefusal(400, "The target must be http://host/path, or host:port with CONNECT.")
    path = absolute[2] if absolute[2].startswith("/") else f"/{absolute[2]}"
    if method == "OPTIONS" and not absolute[2]:
        path = "*"
    expects = "expect" in names and length != 0
    return ProxyRequest(method, _target(absolute[1], 80), path, _end_to_end(headers), length, expects)


def _body(headers: Iterable[Header]) -> int:
    lengths = [value for name, value in headers if name.lower() == "content-length"]
    codings = [value for name, value in headers if name.lower() == "transfer-encoding"]
    if len(lengths) + len(codings) > 1:
        raise ProxyRefusal(400, "The message has more than one length.")
    if codings:
        raise ProxyRefusal(411, "A request needs a Content-Length: no other form of a body passes this proxy.")
    if lengths and not _LENGTH.fullmatch(lengths[0]):
        raise ProxyRefusal(400, "The length is not a number.")
    return int(lengths[0]) if lengths else 0


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


def _length(length: int) -> Header:
    return "Content-Length", str(length)


def _encode(lines: list[str], headers: Iterable[Header]) -> bytes:
    fields = [f"{name}: {value}" for name, value in headers]
    return "\r\n".join([*lines, *fields, "Connection: close", "", ""]).encode("latin-1")


class ProxyExchange:
    """A request with its answer, both carried at once: a server may answer before it has read everything.

    `source` reads from `client`, from the end of the request's head on.
    """

    def __init__(
        self, client: SocketStream, source: BufferedByteReceiveStream, server: SocketStream, request: ProxyRequest
    ) -> None:
        self._client, self._source, self._server, self._request = client, source, server, request
        self._scope = anyio.CancelScope()
        self._idle = 0.0
        self._answered = False
        self._refusal = ProxyRefusal(504, f"{request.target} does not answer")

    async def carry(self, idle: float) -> None:
        """Carry all bytes, until no data passes for `idle` seconds; raises ProxyRefusal."""
        self._idle = idle
        if self._request.is_tunnel:
            await self._client.send(b"HTTP/1.1 200 Connection established\r\n\r\n")
            self._answered = True
        async with anyio.create_task_group() as group:
            self._scope = group.cancel_scope
            self._touch()
            group.start_soon(self._upload)
            group.start_soon(self._download)
        if not self._answered:
            raise self._refusal

    def _touch(self) -> None:
        self._scope.deadline = anyio.current_time() + self._idle

    async def _upload(self) -> None:
        try:
            if self._request.is_tunnel:
                return await self._pump(self._client, self._server)
            await self._to_server(self._request.encode())
            if self._request.expects:
                await self._client.send(b"HTTP/1.1 100 Continue\r\n\r\n")
            left = self._request.length
            while left:
                piece = await self._source.receive(min(PIECE, left))
                left -= len(piece)
                await self._to_server(piece)
        except _ServerGone:
            return None  # it may have answered before
        except GONE:
            self._scope.cancel()

    async def _download(self) -> None:
        try:
            await self._pump(self._server, self._client)
            if self._request.is_tunnel:
                return
        except GONE:
            pass
        self._refusal = ProxyRefusal(502, f"{self._request.target} has closed the connection without an answer")
        self._scope.cancel()

    async def _pump(self, source: SocketStream, sink: SocketStream) -> None:
        while True:
            try:
                piece = await source.receive()
            except anyio.EndOfStream:
                if self._answered:
                    await sink.send_eof()
                return
            self._answered = True
            await sink.send(piece)
            self._touch()

    async def _to_server(self, piece: bytes) -> None:
        try:
            await self._server.send(piece)
        except GONE:
            raise _ServerGone from None
        self._touch()


class _ServerGone(Exception):
    """The server accepts no more data."""
