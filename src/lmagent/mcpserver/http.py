"""HTTP: the streamable transport, as an application inside the gateway, which checks credentials, Host and Origin."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import anyio
import anyio.abc
import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from lmagent.app.runner import Runner
from lmagent.mcpserver.service import ToolService

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

MAX_BODY = 4_000_000
"""Bytes of a request."""

MAX_CLIENTS = 100
"""Connections at the same time."""

UNSUPPORTED = -32022
"""JSON-RPC code of an unsupported protocol version."""


class McpEndpoint:
    """The application. The SDK is imported at the first request."""

    def __init__(self, runner: Runner, names: tuple[str, ...] = ()) -> None:
        self._runner = runner
        self._service = ToolService(runner, names, elsewhere=True)
        self._starting = anyio.Lock()
        self._manager: StreamableHTTPSessionManager | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        manager = await self._started()
        if (refusal := _refusal(scope)) is not None:
            await _read_away(Request(scope, receive))
            await refusal(scope, receive, send)
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


async def _read_away(request: Request) -> None:
    """Read a refused request: a gateway closes the connection of one that was not read."""
    size = 0
    async for piece in request.stream():
        size += len(piece)
        if size > MAX_BODY:
            return


def _refusal(scope: Scope) -> Response | None:
    """Return the answer to a protocol version without handshake, naming those that are served; see `protocol.py`."""
    from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS as SERVED

    given = next((value for name, value in scope["headers"] if name == b"mcp-protocol-version"), b"").decode("latin-1")
    if not given or given in SERVED:
        return None
    data = {"supported": list(SERVED), "requested": given[:40]}
    error = {"code": UNSUPPORTED, "message": "this protocol version is not served; begin with initialize", "data": data}
    body = json.dumps({"jsonrpc": "2.0", "id": None, "error": error})
    return Response(body, 400, media_type="application/json")
