"""Serving: the router on a port, until a signal ends it."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import anyio
import uvicorn
from msgspec import Struct
from uvicorn.protocols.http.h11_impl import H11Protocol

from lmagent.modelserver.errors import BadRequest, body_of
from lmagent.modelserver.http.listening import BACKLOG, GRACE
from lmagent.modelserver.http.router import Router

PORT = 1234  # LM Studio's port, so that clients made for it find us
HEAD = 30.0  # seconds in which a connection has to have sent the head of its first request


class ServerSettings(Struct, frozen=True):
    folder: Path  # where its own files lie (state, key, logs)
    port: int = PORT  # TCP port; 0 takes a free one
    bind: str = "127.0.0.1"  # address to listen on
    cors: bool = False  # pages of all sites may ask
    origins: tuple[str, ...] = ()  # sites whose pages may ask
    key: str = ""  # API key; empty for none, which only loopback allows
    models_dir: Path | None = None  # the folder of the models; None for the usual one
    memory: int = 0  # bytes that all models may take together; 0 for a share of the free memory
    # seconds without a request after which a model is unloaded; None for what each model's settings say
    ttl: float | None = None


class _Protocol(H11Protocol):
    """HTTP with errors in our own shape and a limit on the time for the first head."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._patience = self.loop.call_later(HEAD, self._give_up)

    def connection_lost(self, exc: Exception | None) -> None:
        self._patience.cancel()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Answer bytes that are not HTTP, and close the connection."""
        body = body_of(BadRequest(msg, code="invalid_http"))
        head = b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: %d"
        self.transport.write(head % len(body) + b"\r\n\r\n" + body)
        self.transport.close()

    def _give_up(self) -> None:
        if cast("object", self.cycle) is None:
            self.transport.close()


class RouterServer(uvicorn.Server):
    def __init__(self, router: Router, grace: float = GRACE) -> None:
        super().__init__(
            uvicorn.Config(
                router.app,
                http=_Protocol,
                ws="none",
                lifespan="off",
                access_log=False,
                log_config=None,
                log_level="critical",
                backlog=BACKLOG,
                server_header=False,
                timeout_keep_alive=30,
                timeout_graceful_shutdown=int(grace) + 5,
            )
        )
        self._router = router
        self._grace = grace

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop after running requests have had their grace."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._router.farewell, self._grace)
            await super().shutdown(sockets)
            group.cancel_scope.cancel()


async def serve(
    router: Router,
    listener: socket.socket,
    *,
    grace: float = GRACE,
    started: Callable[[RouterServer], None] | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT, or until `should_exit` of the server is set."""
    server = RouterServer(router, grace)
    if started is not None:
        started(server)
    async with router.running():
        await server.serve(sockets=[listener])
