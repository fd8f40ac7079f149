"""Serving: HTTP with time limits, sockets and TLS on a port, and an orderly stop on a signal."""

from __future__ import annotations

import asyncio
import socket
import ssl
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import anyio
import anyio.abc
import h11
import uvicorn
from msgspec import Struct
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets import http11

from lmagent.core.errors import ungrouped
from lmagent.gateway.http.connections import Caps, Connection, Connections, Knock, raise_limit
from lmagent.gateway.http.errors import Refusal, status_of
from lmagent.gateway.http.guard import MAX_HEAD, PROTECTION, App
from lmagent.gateway.http.route import told

if TYPE_CHECKING:
    from lmagent.gateway.gateway import Gateway

FRAME = 4_000_000  # bytes of a socket's message

# An upgrade's head is read twice, first as plain HTTP. The second reader takes all that the first took; the guard
# refuses a head that is too large.
http11.MAX_LINE_LENGTH = http11.MAX_NUM_HEADERS = 1 << 20

QUEUE = 512  # connections that wait in the kernel to be accepted


class ServingLimits(Struct, frozen=True):
    """Limits of a connection."""

    head: float = 20.0  # seconds for a request's head
    stall: float = 60.0  # seconds for a client without credentials to take sent data; others have ten times as long
    idle: int = 30  # seconds that a connection is kept for the next request
    linger: float = 2.0  # seconds in which a client may read why its body was refused
    ping: float = 20.0  # seconds between two pings of a socket, and for the answer
    grace: int = 5  # seconds that streams have to end when the gateway stops
    caps: Caps | None = None  # limits on connections, None for those of the system


LIMITS = ServingLimits()


NO_HTTP = Refusal(400, "invalid_http", "this is no HTTP request that could be read")
TOO_SLOW = Refusal(408, "too_slow", "the socket was not opened in time")


class _Http(H11Protocol):
    """HTTP with limits on connections and time, and errors in the gateway's shape."""

    limits: ServingLimits
    ledger: Connections
    connection: Connection | None = None
    _timer: Any = None
    _stall: Any = None
    _refused = False
    _is_socket = False

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if self.connection is None:
            self.connection = Connection(transport, self.ledger)
            self.ledger.add(self.connection)
        self.app_state = {**self.app_state, "connection": self.connection}
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self._end_stall()
        if self.connection is not None:
            self.connection.gone()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Drop the bytes that follow a refused request."""
        if self._refused:
            return
        cycle = self.cycle
        super().data_received(data)
        if cast("object", self.cycle) is not cycle:
            self._stop_timer()
        elif self._timer is None and self._between_requests() and not (self._is_socket or self.transport.is_closing()):
            self._expect_head()

    def on_response_complete(self) -> None:
        """Wait for the next request, or close the connection if the rest of a body was not read."""
        self._stop_timer()
        super().on_response_complete()  # this may have begun the next request
        unread = self.conn.their_state is h11.SEND_BODY and self.cycle.response_complete
        if unread and not self.transport.is_closing():
            self._refused = True
            self._unset_keepalive_if_required()
            self.flow.resume_reading()  # otherwise the client would never begin to read
            self._timer = self.loop.call_later(self.limits.linger, self.transport.close)

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Stop the timers: the socket's protocol takes over."""
        self._stop_timer()
        self._is_socket = True
        super().handle_websocket_upgrade(event)

    def send_400_response(self, msg: str) -> None:
        """Answer bytes that are not HTTP, and close."""
        hint = getattr(sys.exc_info()[1], "error_status_hint", 400)
        if hint == 431:
            self._tell(Refusal(431, "head_too_large", f"the head of the request has more than {MAX_HEAD // 1024} kB"))
        else:
            self._tell(NO_HTTP)

    def _expect_head(self) -> None:
        self._timer = self.loop.call_later(self.limits.head, self._give_up)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _between_requests(self) -> bool:
        return cast("object", self.cycle) is None or self.cycle.response_complete

    def _give_up(self) -> None:
        self._timer = None
        if self._between_requests() and not self.transport.is_closing():
            self._tell(Refusal(408, "too_slow", f"no request came in {self.limits.head:.0f} s"))

    def pause_writing(self) -> None:
        """Limit the time: data that the client does not take stays in memory."""
        super().pause_writing()
        known = self.connection is not None and self.connection.known
        self._stall = self.loop.call_later(self.limits.stall * (10 if known else 1), self.transport.abort)

    def resume_writing(self) -> None:
        self._end_stall()
        super().resume_writing()

    def _end_stall(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection, at once if the client has not taken the last answer."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        super().timeout_keep_alive_handler()

    def _tell(self, refusal: Refusal) -> None:
        """Write an answer without h11, whose state is unknown here, and close."""
        if self._between_requests() or not self.cycle.response_started:
            self.transport.write(_written(refusal))
        self.transport.close()


def _written(refusal: Refusal) -> bytes:
    """Return the whole answer of a refusal, for a request that no parser has taken."""
    answer = told(refusal)
    fields = [*answer.raw_headers, *PROTECTION, (b"connection", b"close")]
    head = b"HTTP/1.1 %d Refused\r\n" % status_of(refusal)
    lines = b"".join(name + b": " + value + b"\r\n" for name, value in fields)
    return head + lines + b"\r\n" + bytes(answer.body)


class _Talk(WebSocketsSansIOProtocol):
    """A socket, counted like an HTTP connection. A client that breaks the protocol is sent the reason."""

    limits: ServingLimits
    _is_over = False
    _opening: Any = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._opening = self.loop.call_later(self.limits.head, self._refuse, TOO_SLOW)

    def data_received(self, data: bytes) -> None:
        if self._is_over:
            return
        super().data_received(data)
        if self.conn.handshake_exc is not None and not self.handshake_initiated:
            self._refuse(NO_HTTP)

    def _refuse(self, refusal: Refusal) -> None:
        """Answer a handshake that has no answer yet."""
        if not self.handshake_complete:
            self._is_over = self.handshake_complete = self.close_sent = True
            self.queue.put_nowait({"type": "websocket.disconnect", "code": 1006})
            self.transport.write(_written(refusal))
            self.transport.close()

    def handle_parser_exception(self) -> None:
        """Send the reason, and read on for a moment: if closed at once, the client would not receive it."""
        self._is_over = True
        if (closing := self.conn.close_sent) is not None:
            self.queue.put_nowait({"type": "websocket.disconnect", "code": closing.code, "reason": closing.reason})
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        self.transport.resume_reading()
        self.close_timer = self.loop.call_later(self.limits.linger, self.transport.close)

    def keepalive_timeout(self) -> None:
        """Abort now: a client that does not answer pings will not take the remaining data."""
        super().keepalive_timeout()
        self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._opening.cancel()
        self.app_state["connection"].gone()
        super().connection_lost(exc)


class Serving(uvicorn.Server):
    """The server; when it stops, it ends the gateway's sessions first."""

    def __init__(
        self,
        app: App,
        gateway: Gateway,
        tasks: anyio.abc.TaskGroup,
        limits: ServingLimits = LIMITS,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        ledger = Connections(limits.caps or Caps(total=raise_limit()))
        http = type("Http", (_Http,), {"limits": limits, "ledger": ledger})
        super().__init__(
            uvicorn.Config(
                cast("Any", app),
                http=http,
                ws=type("Talk", (_Talk,), {"limits": limits}),
                ws_max_size=FRAME,
                ws_ping_interval=limits.ping,
                ws_ping_timeout=limits.ping,
                ws_per_message_deflate=False,
                lifespan="off",
                log_config=None,
                log_level="critical",
                access_log=False,
                proxy_headers=False,
                server_header=False,
                backlog=QUEUE,
                h11_max_incomplete_event_size=MAX_HEAD,
                timeout_keep_alive=limits.idle,
                timeout_graceful_shutdown=limits.grace,
            )
        )
        self._gateway = gateway
        self._tls = tls
        self._tasks = tasks
        self._limits = limits
        self.connections = ledger

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        if self._tls is None:
            await super().startup(sockets)
            return
        knock = partial(Knock, self._speaker, self.connections, self._tls, self._tasks, self._limits.head)
        loop = asyncio.get_running_loop()
        self.servers = [await loop.create_server(knock, sock=one, backlog=QUEUE) for one in sockets or ()]
        self.started = True

    def _speaker(self) -> _Http:
        return cast("Any", self.config.http_protocol_class)(self.config, self.server_state, {})

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop the sessions first, so that their streams end by themselves, then the connections that are left."""
        for server in self.servers:
            server.close()
        await self._gateway.end()
        await super().shutdown(sockets)


async def serve(
    app: App,
    gateway: Gateway,
    listener: socket.socket,
    *,
    limits: ServingLimits = LIMITS,
    tls: ssl.SSLContext | None = None,
    started: Callable[[Serving], None] | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT, or until `should_exit` of the server is set, then close the bound `listener`."""
    with ungrouped():
        async with anyio.create_task_group() as tasks:
            server = Serving(app, gateway, tasks, limits, tls)
            if started is not None:
                started(server)
            tasks.start_soon(gateway.run)
            await server.serve(sockets=[listener])
            tasks.cancel_scope.cancel()
