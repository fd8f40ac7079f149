"""Servers at an address that flood, compress, forget, or end their streams at once: real HTTP on loopback."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import pytest
from mcp_kit import Opened, QuietHandler, Watcher, listening, run, until

from lmagent.core.errors import ToolError
from lmagent.mcp.servers import McpServers
from lmagent.mcp.spec import ServerSpec

SCHEMA = {"type": "object", "properties": {"x": {"type": "string", "pattern": "^(a+)+$"}}}
RESULTS: dict[str, Any] = {
    "initialize": {
        "protocolVersion": "2025-06-18",
        "serverInfo": {"name": "far", "version": "1"},
        "capabilities": {"tools": {}},
    },
    "tools/list": {"tools": [{"name": "echo", "inputSchema": {"type": "object"}, "outputSchema": SCHEMA}]},
    "tools/call": {"content": [{"type": "text", "text": "done"}]},
}


class Far(QuietHandler):
    """A server with sessions. `fault` answers a call, `stream` a request for a stream."""

    fault: Any = None
    stream: Any = None
    sessions: list[str]
    streams: list[str]

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        method, number = message.get("method"), message.get("id")
        session = self.headers.get("mcp-session-id")
        if method == "initialize":
            session = f"s{len(self.sessions)}"
            self.sessions.append(session)
        if number is None:
            self.answer(202, b"")
        elif method not in RESULTS:
            self.reply(number, error={"code": -32601, "message": "no such method"})
        elif session not in self.sessions:
            self.answer(404, b"")
        elif method == "tools/call" and self.fault is not None:
            self.fault(number)
        else:
            self.reply(number, session or "", result=RESULTS[method])

    def do_GET(self) -> None:
        self.streams.append("opened")
        if self.stream is None:
            self.answer(405, b"")
        else:
            self.stream()

    def reply(self, number: int, session: str = "", **content: Any) -> None:
        body = json.dumps({"jsonrpc": "2.0", "id": number, **content}).encode()
        self.begin("application/json", session)
        self.wfile.write(body)

    def begin(self, kind: str, session: str = "", encoding: str = "") -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        if session:
            self.send_header("mcp-session-id", session)
        if encoding:
            self.send_header("Content-Encoding", encoding)
        self.end_headers()

    def fill(self, piece: bytes) -> None:
        """Send a piece for as long as it is taken."""
        try:
            while True:
                self.wfile.write(piece)
        except OSError:
            pass


@contextmanager
def far(opened: Opened, **faults: Any) -> Generator[tuple[McpServers, type[Far]]]:
    handler = type("Handler", (Far,), {"sessions": [], "streams": [], **faults})
    with listening(handler) as address:
        yield opened.servers(ServerSpec("far", url=f"{address}mcp", call_timeout=20.0)), handler


def bomb() -> bytes:
    """Return 20 MB of spaces, compressed."""
    made = zlib.compressobj(1, zlib.DEFLATED, 31)
    return b"".join([*(made.compress(b" " * 1_000_000) for _ in range(20)), made.flush()])


def compressed(kind: str) -> Callable[[Far, int], None]:
    def fault(self: Far, number: int) -> None:
        self.begin(kind, encoding="gzip")
        self.fill(bomb())

    return fault


def filled(kind: str, piece: bytes, head: bytes = b"") -> Callable[[Far, int], None]:
    def fault(self: Far, number: int) -> None:
        self.begin(kind)
        self.wfile.write(head)
        self.fill(piece)

    return fault


def wide(self: Far, number: int) -> None:
    self.begin("application/json")
    self.wfile.write(b'{"jsonrpc": "2.0", "id": %d, "result": {"content": [%s{}]}}' % (number, b"{}," * 2_000_000))


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (compressed("application/json"), "it sent a compressed answer, which was not asked for"),
        (wide, "it sent an answer with more than 1,000,000 brackets"),
        (lambda self, _: (self.begin("text/event-stream"), self.wfile.write(b"data: {")), "ended without a response"),
        (lambda self, _: self.answer(200, b'{"id": "\xff"}', "application/json"), "Failed to parse JSON response"),
        pytest.param(compressed("text/event-stream"), "a compressed answer", marks=pytest.mark.long),
        pytest.param(filled("application/json", b" " * 100_000), "more than 16 MB", marks=pytest.mark.long),
        pytest.param(filled("text/event-stream", b"x" * 100_000, b"data: "), "more than 16 MB", marks=pytest.mark.long),
        pytest.param(
            filled("text/event-stream", b"{" * 9999, b"data: "), "more than 1,000,000", marks=pytest.mark.long
        ),
    ],
    ids=["compressed", "wide", "cut", "no UTF-8", "compressed events", "endless", "endless event", "wide event"],
)
def test_an_answer_that_cannot_be_taken_is_one_line_and_the_next_call_works(
    opened: Opened, fault: Callable[[Far, int], object], said: str
) -> None:
    with far(opened, fault=fault) as (servers, handler):

        async def work() -> None:
            with pytest.raises(ToolError, match=said) as failure:
                await servers.call("far", "echo", {}, Watcher())
            assert "\n" not in str(failure.value)
            handler.fault = None
            assert (await servers.call("far", "echo", {}, Watcher())).parts[0].text == "done"

        run(work)


def test_a_server_that_has_forgotten_the_session_is_connected_to_anew(opened: Opened) -> None:
    with far(opened) as (servers, handler):

        async def work() -> None:
            await servers.ready("far")
            handler.sessions[:] = ["s-of-another"]
            with pytest.raises(ToolError, match="it has forgotten the session"):
                await servers.call("far", "echo", {}, Watcher())
            assert (await servers.call("far", "echo", {}, Watcher())).parts[0].text == "done"

        run(work)


def test_streams_that_end_at_once_are_asked_for_once_a_second(opened: Opened) -> None:
    def ended(self: Far) -> None:
        self.begin("text/event-stream")
        self.wfile.write(b"retry: 0\nid: 1\n\n")

    with far(opened, stream=ended) as (servers, handler):

        async def work() -> None:
            await servers.ready("far")
            await until(lambda: len(handler.streams) >= 2)
            assert (await servers.call("far", "echo", {}, Watcher())).parts[0].text == "done"

        run(work)
        assert len(handler.streams) <= 4


def test_a_result_is_not_checked_with_the_servers_own_patterns(opened: Opened) -> None:
    def backtracking(self: Far, number: int) -> None:
        self.reply(number, result={"content": [], "structuredContent": {"x": "a" * 40 + "!"}})

    with far(opened, fault=backtracking) as (servers, _):
        result = run(lambda: servers.call("far", "echo", {}, Watcher()))
    assert result.structured == {"x": "a" * 40 + "!"}
