"""What the tests of servers share."""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeVar

import anyio

from lmagent.mcp.config import LoadedServers
from lmagent.mcp.servers import McpServers
from lmagent.mcp.spec import (
    Elicitation,
    ElicitationAnswer,
    Needs,
    SamplingRequest,
    ServerSpec,
)
from lmagent.sandbox.environment import SandboxRequest

T = TypeVar("T")
FAULTY = Path(__file__).with_name("faulty_server.py")


class QuietHandler(BaseHTTPRequestHandler):
    """Answers a request, and writes nothing to the terminal."""

    def answer(self, status: int, body: bytes, kind: str = "") -> None:
        self.send_response(status)
        if kind:
            self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def listening(handler: type[QuietHandler]) -> Generator[str]:
    """Serve on loopback; yield the address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Watcher:
    """The handler of a call, which answers as a test says and keeps what it received."""

    def __init__(self, reply: str | None = "four", answer: ElicitationAnswer | None = None) -> None:
        self.shown: list[str] = []
        self.asked: list[SamplingRequest | Elicitation] = []
        self.reply = reply
        self.answer = answer or ElicitationAnswer("accept", {"name": "Bo"})

    def progress(self, text: str) -> None:
        self.shown.append(text)

    async def sample(self, request: SamplingRequest) -> str | None:
        self.asked.append(request)
        return self.reply

    async def elicit(self, request: Elicitation) -> ElicitationAnswer:
        self.asked.append(request)
        return self.answer


class Opened:
    """Opens servers in a workspace, as programs do."""

    def __init__(self, folder: Path) -> None:
        self.workspace = folder / "work"
        self.data = folder / "data"
        self.workspace.mkdir()
        shutil.copy(FAULTY, self.workspace)
        self.all: list[McpServers] = []
        self.auth: Callable[..., Any] = lambda _spec, _data, **_: None
        self.request = SandboxRequest(env={**os.environ, "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"})

    def servers(self, *specs: ServerSpec, untrusted: dict[str, str] | None = None) -> McpServers:
        loaded = LoadedServers(specs, untrusted=untrusted or {})
        self.all.append(McpServers(self.workspace, loaded, self.data, self.request, self.auth))
        return self.all[-1]

    def faulty(self, fault: str = "", name: str = "faulty", **options: Any) -> ServerSpec:
        return ServerSpec(name, ("python3", "faulty_server.py", *([fault] if fault else [])), **options)

    def bare(self, *fault: str, **options: Any) -> ServerSpec:
        """A server of the tests without a sandbox."""
        return ServerSpec("bare", (sys.executable, str(FAULTY), *fault), needs=Needs(unconfined=True), **options)


def run(work: Callable[[], Awaitable[T]]) -> T:
    async def main() -> T:
        with anyio.fail_after(60):
            return await work()

    return anyio.run(main)


async def until(fact: Callable[[], object], seconds: float = 20) -> None:
    """Wait until something is true."""
    with anyio.fail_after(seconds):
        while not fact():  # noqa: ASYNC110 - the facts are on another thread
            await anyio.sleep(0.01)
