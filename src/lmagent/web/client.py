"""Client: one GET over a guarded connection, within bounds of time and size. It sends no cookie, key or referrer.

Proxies of the environment are not used: a proxy resolves names itself, and nothing would be judged.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, cast

import anyio
import anyio.lowlevel
import httpcore
from msgspec import Struct

from lmagent.core.errors import ToolError
from lmagent.providers.transport import TransportError, classify
from lmagent.sandbox.hosts import Target
from lmagent.web.guard import WebGuard
from lmagent.web.links import WebLink

if TYPE_CHECKING:
    import ssl

AGENT = "lmagent/0.1 (a local assistant that reads pages for its user)"
"""The honest name. Its first word is the one that robots.txt may name."""

ACCEPT = "text/markdown, text/html, application/xhtml+xml;q=0.9, text/*;q=0.8, */*;q=0.5"

PIECE = 64 * 1024
"""Bytes that a compressed body is unpacked to at once."""

COST = 64
"""Bytes that a piece of a body counts for besides its own, so that a body in pieces of one byte ends too."""

_TRIES = 4
_DAMAGED = "The page came packed, and the packed bytes are damaged."
_READ_IN_PART = ("text/", "application/xhtml", "application/json", "application/xml")
"""Kinds of bodies whose beginning is of use without the rest."""


class FetchLimits(Struct, frozen=True):
    """Bounds of one request. Times are in seconds, sizes in bytes, before and after a body is unpacked.

    Attributes:
        connect: time for each address.
        silence: time without a byte.
        whole: time for the whole request, so that a slow drip ends.
    """

    connect: float = 10.0
    silence: float = 20.0
    whole: float = 45.0
    body: int = 10 << 20


class WebAnswer(Struct, frozen=True):
    """A server's answer. Header names are in lower case; `cut` if the body was longer than the limit."""

    status: int
    headers: Mapping[str, str]
    body: bytes = b""
    cut: bool = False


class GuardedNetwork(httpcore.AsyncNetworkBackend):
    """Opens connections to judged addresses. Nothing else in this package opens one."""

    def __init__(self, guard: WebGuard) -> None:
        self._guard = guard
        self._plain = cast("httpcore.AsyncNetworkBackend", httpcore.AnyIOBackend())

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect to the first address of a host that answers."""
        last: Exception = httpcore.ConnectError()
        for address in (await self._guard.addresses(Target(host, port)))[:_TRIES]:
            try:
                return await self._plain.connect_tcp(str(address), port, timeout, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as failure:
                last = failure
        raise last

    async def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None
    ) -> httpcore.AsyncNetworkStream:
        """Refuse."""
        raise httpcore.UnsupportedProtocol("no page comes from a socket file")

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await anyio.sleep(seconds)


class WebClient:
    """Sends requests, each over connections of its own."""

    def __init__(self, guard: WebGuard, limits: FetchLimits = FetchLimits(), tls: ssl.SSLContext | None = None) -> None:  # noqa: B008
        self._backend = GuardedNetwork(guard)
        self._limits = limits
        self._tls = tls

    async def get(self, link: WebLink, accept: str = ACCEPT) -> WebAnswer:
        """Return the answer; a redirect is not followed. Raise ToolError if none comes within the limits."""
        try:
            with anyio.fail_after(self._limits.whole):
                return await self._get(link, accept)
        except TimeoutError:
            raise ToolError(f"{link} did not answer within {self._limits.whole:g} s.") from None
        except ToolError:
            raise
        except Exception as error:
            if (failure := classify(error, "first_byte")) is None:
                raise
            raise ToolError(_words(link, failure)) from None

    async def _get(self, link: WebLink, accept: str) -> WebAnswer:
        limits = self._limits
        headers: dict[str | bytes, str | bytes] = {
            "Host": link.host,
            "User-Agent": AGENT,
            "Accept": accept,
            "Accept-Encoding": "gzip, deflate",
        }
        url = httpcore.URL(
            scheme=link.scheme.encode(),
            host=link.target.host.encode(),
            port=link.target.port,
            target=link.path.encode(),
        )
        patience = {"connect": limits.connect, "write": limits.silence, "read": limits.silence, "pool": limits.connect}
        async with (
            httpcore.AsyncConnectionPool(ssl_context=self._tls, network_backend=self._backend) as pool,
            pool.stream("GET", url, headers=headers, extensions={"timeout": patience}) as response,
        ):
            found = {name.decode("latin-1").lower(): _text(value) for name, value in response.headers}
            if response.status != 200:  # nothing of the other bodies is shown
                return WebAnswer(response.status, found)
            body = Body(found.get("content-encoding", ""), limits.body)
            async for piece in response.aiter_stream():
                if body.feed(piece):
                    break
                await anyio.lowlevel.checkpoint()  # many tiny chunks arrive in one read, and would stop the loop
        return answer_with(body, found, link)


class Body:
    """A body that arrives in pieces, unpacked up to a limit: what a bomb would unpack to never exists."""

    def __init__(self, encoding: str, limit: int) -> None:
        known = encoding.strip().lower()
        if known not in ("", "identity", "gzip", "x-gzip", "deflate"):
            raise ToolError(f"The server packed the page with {known[:40]!r}, which was not asked for.")
        self.content = bytearray()
        self.full = False
        self.limit = limit
        self._left = limit
        self._packed = known not in ("", "identity")
        self._unpacker = zlib.decompressobj(47)  # gzip or zlib
        self._headless = False
        self._whole = False

    def feed(self, data: bytes) -> bool:
        """Take a piece; return whether the limit is reached, on the packed or the unpacked side."""
        self._left -= len(data) + COST
        if self._packed:
            self._unpack(data)
        else:
            self.content += data
        if self._left < 0 or len(self.content) > self.limit:
            self.full = True
            del self.content[self.limit :]
        return self.full

    def finish(self) -> None:
        """Raise ToolError if a packed body has ended too early."""
        if self._packed and self.content and not (self._whole or self.full):
            raise ToolError(_DAMAGED)

    def _unpack(self, data: bytes) -> None:
        while data and len(self.content) <= self.limit:
            data = self._next(data)

    def _next(self, data: bytes) -> bytes:
        """Unpack one piece; return the packed bytes that remain."""
        try:
            self.content += self._unpacker.decompress(data, PIECE)
        except zlib.error:
            if self._whole:  # padding after the end
                return b""
            if self._headless or self.content:
                raise ToolError(_DAMAGED) from None
            self._headless = True
            self._unpacker = zlib.decompressobj(-15)  # some servers leave out the head of zlib
            return data
        if not self._unpacker.eof:
            return self._unpacker.unconsumed_tail
        rest, self._unpacker, self._whole = self._unpacker.unused_data, zlib.decompressobj(47), True
        return rest


def answer_with(body: Body, headers: Mapping[str, str], link: WebLink) -> WebAnswer:
    """Return the answer with its body. Raise ToolError if that is damaged, or too long and of no use in part."""
    body.finish()
    if body.full and not headers.get("content-type", "text/").lower().startswith(_READ_IN_PART):
        raise ToolError(f"{link} is longer than {body.limit >> 20} MB, so it was not read.")
    return WebAnswer(200, headers, bytes(body.content), body.full)


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def _words(link: WebLink, failure: TransportError) -> str:
    said = {
        "refused": "refuses connections",
        "connect": "cannot be reached",
        "connect_timeout": "does not accept a connection",
        "tls": f"has no valid certificate ({failure.detail[:200]})",
        "first_byte": "is silent",
        "idle": "stopped in the middle of the page",
        "lost": "closed the connection before the page was whole",
        "protocol": f"does not speak HTTP as it should ({failure.detail[:200]})",
    }
    return f"{link.origin} {said.get(failure.kind, failure.kind)}."
