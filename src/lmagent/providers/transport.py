"""Transport: bytes to a server and back. The only file that knows the HTTP library."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast
from urllib.parse import unquote, urlsplit, urlunsplit

import anyio
from msgspec import Struct
from msgspec.structs import replace

from lmagent.providers.urls import authority, is_near, proxy_for, server_root

if TYPE_CHECKING:
    import httpcore

MOST = 1024
"""Connections at once: one for each session that waits for a model, in a gateway with many sessions."""

KEPT = 32
"""Idle connections that are kept. The library checks all idle ones at each request: with five hundred that end
together, the checks would take longer than the transfers."""

PAUSE = 0.065
"""Seconds between two reads of one stream: faster text is shown 15 times a second, which looks the same."""

MANY, PAUSE_OF_MANY = 8, 0.12
"""Streams from which the pause is longer. So many belong to several users, or to sub-agents."""

READS = 2500
"""Reads a second, of all streams together, above which the pause grows: a read costs a tenth of a millisecond."""

SLOWEST = 0.1
"""Seconds a token of the prompt, for a processor without a graphics card and a model of 30B."""

BYTES_PER_TOKEN = 4
"""A low figure, so that the limit is rather too long than too short."""

NEARBY = 0.5
"""Seconds that a connection to a server nearby may take before the address counts as silent."""

Phase = Literal["first_byte", "idle"]
Failure = Literal["refused", "dns", "tls", "connect", "connect_timeout", "first_byte", "idle", "lost", "protocol"]


class Timeouts(Struct, frozen=True):
    """Limits for silence. There is no limit on the whole of a request.

    Attributes:
        connect: seconds to open a connection.
        first_byte: seconds from the request to the first byte of the answer's body (`LLM_TIMEOUT`).
        idle: seconds between two bytes (`LLM_TIMEOUT`); keep-alive comments count as bytes.
        per_token: seconds that a token of the prompt may take; a server that is silent while it reads a long prompt
            gets the longer of this and `first_byte`.
    """

    connect: float = 10.0
    first_byte: float = 560.0
    idle: float = 560.0
    per_token: float = 0.0

    def reading(self, prompt_bytes: int) -> Timeouts:
        seconds = prompt_bytes // BYTES_PER_TOKEN * self.per_token
        return self if seconds <= self.first_byte else replace(self, first_byte=seconds)


class TransportError(Exception):
    """The bytes did not get through.

    Args:
        kind: after `first_byte` and `idle` the server may still be at work; after the others it is not.
        detail: the message of the library or the system.
    """

    def __init__(self, kind: Failure, detail: str = "") -> None:
        super().__init__(f"{kind}: {detail}" if detail else kind)
        self.kind: Failure = kind
        self.detail = detail


class ErrorChunk(Exception):
    """A server's report of an error inside an answer with status 200."""

    def __init__(self, error: Any) -> None:
        super().__init__(repr(error))
        self.error = error


class TransportResponse(Struct, frozen=True):
    """An answer whose body is still arriving.

    Attributes:
        headers: names in lower case.
        chunks: the body; raises TransportError.
        aclose: gives the connection back, or closes it if the body was not read to its end. Always call it, or use
            the answer as a context.
    """

    status: int
    headers: Mapping[str, str]
    chunks: AsyncIterator[bytes]
    aclose: Callable[[], Awaitable[None]]

    async def __aenter__(self) -> TransportResponse:
        return self

    async def __aexit__(self, *_: object) -> None:
        with anyio.CancelScope(shield=True):
            await self.aclose()


def json_headers(key: str, accept: str = "application/json") -> dict[str, str]:
    headers = {"Content-Type": "application/json", "Accept": accept, "User-Agent": "lmagent"}
    return headers | ({"Authorization": f"Bearer {key}"} if key else {})


def is_silent(url: str) -> bool:
    """Return whether no server listens at an address nearby. Raise ConfigError if it is no URL."""
    return is_near(server_root(url)) and not listens(url, NEARBY)


def listens(url: str, within: float) -> bool:
    """Return whether an address accepts connections within so many seconds. Raise ConfigError if it is no URL."""
    parts = urlsplit(server_root(url))
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        socket.create_connection((parts.hostname or "", port), timeout=within).close()
    except OSError:
        return False
    return True


class Transport(Protocol):
    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, timeouts: Timeouts
    ) -> TransportResponse:
        """Send a request and return as soon as the head of the answer has arrived. Raise TransportError without one."""
        ...

    async def aclose(self) -> None: ...


class HttpTransport:
    """A pool of kept-alive connections, and one for each proxy in the environment (`env`)."""

    def __init__(self, env: Mapping[str, str] | None = None) -> None:
        self._env = os.environ if env is None else env
        self._pools: dict[str | None, httpcore.AsyncConnectionPool] = {}
        self._streams = 0

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, timeouts: Timeouts
    ) -> TransportResponse:
        import httpcore

        patience = {"connect": timeouts.connect, "write": timeouts.idle, "read": timeouts.first_byte}
        fields = [(b"Host", authority(url).encode())]
        fields += [(name.encode(), value.encode("latin-1", "replace")) for name, value in headers.items()]
        if body or method == "POST":
            fields.append((b"Content-Length", b"%d" % len(body)))
        request = httpcore.Request(method, url, headers=fields, content=body, extensions={"timeout": patience})
        pool = self._pool(url)
        reused = bool(pool.connections)
        try:
            try:
                answer = await pool.handle_async_request(request)
            except (httpcore.RemoteProtocolError, httpcore.ReadError, httpcore.WriteError):
                if not reused:
                    raise
                # The server closed a kept-alive connection at this very moment: it never saw the request.
                answer = await pool.handle_async_request(request)
        except Exception as error:
            if (failure := classify(error, "first_byte")) is None:
                raise
            raise failure from error
        patience["read"] = max(timeouts.first_byte, timeouts.idle)  # the library reads it again when the body begins
        fields_in = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in answer.headers}
        return TransportResponse(answer.status, fields_in, self._chunks(answer, timeouts), answer.aclose)

    async def _chunks(self, answer: httpcore.Response, timeouts: Timeouts) -> AsyncGenerator[bytes]:
        """Yield the body. Streams of many sessions are read in turns: a read costs the same whatever its size."""
        from lmagent.providers.wire import body_of, wire_of

        wire = wire_of(answer)
        pieces: AsyncIterator[bytes] = answer.aiter_stream()
        if wire is not None:
            pieces = body_of(answer, wire, (timeouts.first_byte, timeouts.idle), self._pause)
        phase: Phase = "first_byte"
        self._streams += 1
        try:
            async for chunk in pieces:
                yield chunk
                phase = "idle"
        except Exception as error:
            if (failure := classify(error, phase)) is None:
                raise
            raise failure from error
        finally:
            self._streams -= 1

    def _pause(self) -> float:
        return max(PAUSE if self._streams < MANY else PAUSE_OF_MANY, self._streams / READS)

    async def aclose(self) -> None:
        pools, self._pools = self._pools, {}
        for pool in pools.values():
            await pool.aclose()

    def _pool(self, url: str) -> httpcore.AsyncConnectionPool:
        proxy = proxy_for(url, self._env)
        if proxy not in self._pools:
            self._pools[proxy] = _new_pool(proxy)
        return self._pools[proxy]


def _new_pool(proxy: str | None) -> httpcore.AsyncConnectionPool:
    import httpcore

    from lmagent.providers.wire import Wires

    kept: dict[str, Any] = {"max_connections": MOST, "max_keepalive_connections": KEPT, "network_backend": Wires()}
    if proxy is None:
        return httpcore.AsyncConnectionPool(**kept)
    parts = urlsplit(proxy)
    auth = (unquote(parts.username), unquote(parts.password or "")) if parts.username else None
    bare = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], "/", "", ""))
    return httpcore.AsyncHTTPProxy(bare, proxy_auth=auth, **kept)


def classify(error: Exception, phase: Phase) -> TransportError | None:
    """Return the TransportError for an exception of the library, None for others; `phase` names a read timeout."""
    import httpcore

    text = str(error)
    match error:
        case httpcore.ConnectTimeout() | httpcore.PoolTimeout():
            return TransportError("connect_timeout")
        case httpcore.TimeoutException() | TimeoutError():
            return TransportError(phase)
        case httpcore.ConnectError():
            return _connect_failure(error)
        case httpcore.ProxyError():
            return TransportError("connect", f"the proxy answered {text}")
        case httpcore.NetworkError():
            return TransportError("lost", text)
        case httpcore.ProtocolError() | httpcore.UnsupportedProtocol():
            return TransportError("lost" if "closed" in text or "disconnected" in text else "protocol", text)
        case _:
            return None


_REFUSED = f"[Errno {errno.ECONNREFUSED}]"
"""The event loop's text for a name with several addresses: one error for all."""


def _connect_failure(error: BaseException) -> TransportError:
    """Return the cause, which is below the library's "all attempts failed"."""
    cause: BaseException | None = error
    last = error
    while cause is not None:
        if isinstance(cause, ExceptionGroup):
            cause = cast("ExceptionGroup[Exception]", cause).exceptions[0]
        if isinstance(cause, ConnectionRefusedError) or _REFUSED in str(cause):
            return TransportError("refused", str(cause))
        if isinstance(cause, OSError) and type(cause).__name__ == "gaierror":
            return TransportError("dns", cause.strerror or str(cause))
        if type(cause).__module__ == "ssl":
            return TransportError("tls", str(cause))
        last = cause
        cause = cause.__cause__ or cause.__context__
    return TransportError("connect", str(last))


async def read_all(response: TransportResponse, limit: int) -> bytes:
    """Return the body up to `limit` bytes; the rest is not read. Raise TransportError if the body breaks off."""
    body = bytearray()
    async for chunk in response.chunks:
        body += chunk
        if len(body) >= limit:
            break
    return bytes(body[:limit])
