"""The conformance package's scenarios for servers, against `/mcp` of a real gateway."""

from __future__ import annotations

import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import httpx2
import pytest
import uvicorn
from gateway_kit import Running, shared
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route
from testkit.conformance import ConformancePackage, documented

pytestmark = [pytest.mark.long]


@contextmanager
def with_token(running: Running) -> Iterator[str]:
    """An address that passes requests on to the gateway's with the token, which the package cannot send."""

    async def passed(request: Request) -> StreamingResponse:
        headers = [(name, value.replace(f":{port}", f":{running.port}")) for name, value in request.headers.items()]
        http = httpx2.AsyncClient(timeout=60)
        asked = http.build_request(
            request.method,
            f"{running.url}/mcp",
            headers=[*headers, *running.headers.items()],
            content=await request.body(),
        )
        answer = await http.send(asked, stream=True)

        async def pieces() -> AsyncIterator[bytes]:
            try:
                async for piece in answer.aiter_raw():
                    yield piece
            finally:
                with anyio.CancelScope(shield=True):
                    await answer.aclose()
                    await http.aclose()

        return StreamingResponse(pieces(), answer.status_code, headers=dict(answer.headers))

    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    app = Starlette(routes=[Route("/mcp", passed, methods=["GET", "POST", "DELETE"])])
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        server.should_exit = True
        thread.join(10)


def test_all_scenarios_for_servers_that_apply_pass(tmp_path: Path) -> None:
    package = ConformancePackage()
    scenarios, results = package.scenarios("Server"), documented("Server")
    assert set(results) == set(scenarios)
    failed: dict[str, str] = {}
    with shared([], options=("--mcp-serve",)) as running, with_token(running) as url:
        for scenario in scenarios:
            if results[scenario] == "passed":
                status, output = package.run("server", "--url", url, "--scenario", scenario, cwd=tmp_path)
                if status:
                    failed[scenario] = output[-3000:]
    assert failed == {}
