"""Serves recorded answers over real HTTP, and asks real servers and fakes from a test."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import anyio

from lmagent.core.messages import user
from lmagent.core.model import ModelRequest, ToolSpec
from lmagent.providers.dialects.base import ServerFacts
from lmagent.providers.dialects.probe import probe
from lmagent.providers.transport import HttpTransport, Transport
from lmagent.testing.loopback import LoopbackServer, Received, Response

FIXTURES = Path(__file__).parent / "fixtures"
READ = ToolSpec("read", "Read a file.", {"type": "object", "properties": {"path": {"type": "string"}}})
T = TypeVar("T")


def fixture(name: str) -> dict[str, Any]:
    """`ollama/nothing-loaded`, decoded."""
    return json.loads((FIXTURES / f"{name}.json").read_text())


def names() -> list[str]:
    return sorted(path.relative_to(FIXTURES).with_suffix("").as_posix() for path in FIXTURES.rglob("*.json"))


@contextmanager
def answering(routes: Mapping[str, Any]) -> Iterator[LoopbackServer]:
    """A server with these answers by `METHOD path?query`; `*` for all other GETs. Bytes are sent as they are."""

    async def handle(received: Received) -> Response:
        path = received.path + (f"?{received.query}" if received.query else "")
        key = f"{received.method} {path}"
        if key not in routes and not (received.method == "GET" and "*" in routes):
            return Response((b'{"error":{"message":"File Not Found","code":404}}',), 404)
        said = routes.get(key, routes.get("*"))
        if isinstance(said, Response):
            return said
        return Response((said if isinstance(said, bytes) else json.dumps(said).encode(),))

    with LoopbackServer(handle) as server:
        yield server


def with_transport(work: Callable[[Transport], Awaitable[T]], seconds: float = 10.0) -> T:
    """Run something that needs a transport."""

    async def main() -> T:
        transport = HttpTransport({})
        try:
            with anyio.fail_after(seconds):
                return await work(transport)
        finally:
            await transport.aclose()

    return anyio.run(main)


def ask(base_url: str, model: str = "", key: str = "", **settings: Any) -> ServerFacts:
    """What the probe finds."""
    return with_transport(lambda transport: probe(transport, base_url, model, key, **settings))


def request(text: str = "hi", **fields: Any) -> ModelRequest:
    values: dict[str, Any] = {"model": "m", "system": "s", "tools": (READ,), "messages": [user(text)], **fields}
    return ModelRequest(**values)
