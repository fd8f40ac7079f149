"""HTTP: the streamable transport, as an application inside the gateway, which checks credentials, Host and Origin."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import anyio.abc
import anyio.to_thread
import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from lmagent.app.runner import Runner
from lmagent.core.decoding import decode_json
from lmagent.mcpserver.service import ToolService

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

MAX_BODY = 4_000_000
"""Bytes of a request."""

MAX_CLIENTS = 100
"""Connections at the same time."""

UNSUPPORTED = -32022
"""JSON-RPC code of an unsupported protocol version."""


class _Request(Struct):
    id: str | int | None = None


class McpEndpoint:
    """The application. The SDK is imported at the first request."""

    def __init__(self, runner: Runner, names: tuple[str, ...] = ()) -> None:
        self._runner = runner
        self._service = ToolService(runner, names, elsewhere=True)
        self._starting = anyio.Lock()
        self._manager: StreamableHTTPSessionManager | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        manager = await self._started()
        if version := _unserved(scope):
            body = await _body(Request(scope, receive))
            await _refusal(version, body)(scope, receive, send)
        else:
            await manager.handle_request(scope, receive, send)

    async def _started(self) -> StreamableHTTPSessionManager:
        async with self._starting:
            if self._manager is None:
                manager = await anyio.to_thread.run_sync(self._made)
                await (await self._runner.ready()).start(self._run, manager)
                self._manager = manager
            return self._manager

    def _made(self) -> StreamableHTTPSessionManager:
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

        from lmagent.mcpserver.protocol import server_of

        return StreamableHTTPSessionManager(
            server_of(self._service), max_request_body_size=MAX_BODY, max_sessions=MAX_CLIENTS
        )

    async def _run(
        self,
        manager: StreamableHTTPSessionManager,
        *,
        task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        async with manager.run():
            task_status.started()
            await anyio.sleep_forever()  # the runner cancels it when it ends


def _unserved(scope: Scope) -> str:
    """Return the protocol version of a request if it is one without handshake; see `protocol.py`."""
    from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS as SERVED

    given = next((value for name, value in scope["headers"] if name == b"mcp-protocol-version"), b"").decode("latin-1")
    return "" if given in SERVED else given[:40]


async def _body(request: Request) -> bytes:
    """Return the body of a request, bounded: a gateway closes the connection of a request that was not read."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > MAX_BODY:
            return b""
    return bytes(body)


def _refusal(version: str, body: bytes) -> Response:
    """Return the answer to a request of an unserved version: it names the versions that are served."""
    from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS as SERVED

    try:
        id = decode_json(body, _Request).id
    except (ValueError, RecursionError):
        id = None  # it is no single request
    data = {"supported": list(SERVED), "requested": version}
    error = {"code": UNSUPPORTED, "message": "this protocol version is not served; begin with initialize", "data": data}
    answer = msgspec.json.encode({"jsonrpc": "2.0", "id": id, "error": error})
    return Response(answer, 400, media_type="application/json")
