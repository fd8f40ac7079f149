"""A tiny real HTTP server on loopback that says exactly the bytes a test wants, when it wants them."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio

from lmagent.core.errors import LmagentError
from lmagent.core.messages import user
from lmagent.core.model import ModelEvent, ModelReply, ModelRequest, ToolSpec
from lmagent.providers.openai_chat import OpenAIChat
from lmagent.providers.retry import RetryPolicy
from lmagent.providers.transport import HttpTransport, Timeouts

USUAL = RetryPolicy()
QUICK = Timeouts(connect=2.0, first_byte=5.0, idle=5.0)
READ = ToolSpec("read", "Read a file.", {"type": "object", "properties": {"path": {"type": "string"}}})


@dataclass
class Answer:
    """What the server says to one request: pieces of the body, with pauses (seconds) between them.

    `end`: "complete", "cut" (the connection dies in the middle), or "open" (nothing more comes, nothing is closed).
    """

    pieces: Sequence[bytes | float] = ()
    status: int = 200
    content_type: str = "text/event-stream"
    headers: dict[str, str] = field(default_factory=dict)
    end: str = "complete"
    chunked: bool = True
    before_head: float = 0.0


@dataclass
class Seen:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Loopback:
    """Answers in order; the last answer stands for all further requests. Routes win over the order."""

    def __init__(self, answers: Sequence[Answer], routes: dict[str, Answer] | None = None) -> None:
        self.answers = list(answers)
        self.routes = routes or {}
        self.requests: list[Seen] = []
        self.connections = 0
        self.writers: list[asyncio.StreamWriter] = []
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.append(writer)
        try:
            while True:
                seen = await _request(reader)
                self.requests.append(seen)
                answer = self.routes.get(seen.path)
                if answer is None:
                    answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
                await _say(writer, answer)
                if answer.end == "open":
                    await reader.read()
                if answer.end != "complete" or not answer.chunked:
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client is gone
        finally:
            writer.close()


async def _request(reader: asyncio.StreamReader) -> Seen:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, path, _ = head[0].split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Seen(method, path, headers, body)


async def _say(writer: asyncio.StreamWriter, answer: Answer) -> None:
    if answer.before_head:
        await asyncio.sleep(answer.before_head)
    head = [f"HTTP/1.1 {answer.status} X", f"Content-Type: {answer.content_type}"]
    head += [f"{name}: {value}" for name, value in answer.headers.items()]
    head.append("Transfer-Encoding: chunked" if answer.chunked else "Connection: close")
    writer.write("\r\n".join([*head, "", ""]).encode())
    for piece in answer.pieces:
        if isinstance(piece, float):
            await writer.drain()
            await asyncio.sleep(piece)
        elif piece:
            writer.write(b"%x\r\n%s\r\n" % (len(piece), piece) if answer.chunked else piece)
    if answer.end == "complete" and answer.chunked:
        writer.write(b"0\r\n\r\n")
    await writer.drain()
    if answer.end == "cut":
        await asyncio.sleep(0.01)


@asynccontextmanager
async def loopback(*answers: Answer, routes: dict[str, Answer] | None = None) -> AsyncIterator[Loopback]:
    server = Loopback(answers, routes)
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()
        for writer in server.writers:
            writer.close()
        await asyncio.sleep(0)


class TestClock:
    """Real monotonic time; sleeping is noted and takes none."""

    __test__ = False

    def __init__(self) -> None:
        self.slept: list[float] = []

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


@dataclass
class Run:
    """What came of a call."""

    events: list[ModelEvent]
    server: Loopback
    clock: TestClock
    error: Exception | None = None

    @property
    def reply(self) -> ModelReply:
        if self.error is not None:
            raise self.error
        assert isinstance(self.events[-1], ModelReply)
        return self.events[-1]


def request(text: str = "hi", **fields: Any) -> ModelRequest:
    values: dict[str, Any] = {"model": "m", "system": "s", "tools": (READ,), "messages": [user(text)], **fields}
    return ModelRequest(**values)


def ask(
    *answers: Answer,
    asked: ModelRequest | None = None,
    timeouts: Timeouts = QUICK,
    retries: RetryPolicy = USUAL,
    routes: dict[str, Answer] | None = None,
    key: str = "",
) -> Run:
    """One call against a server that gives these answers."""

    async def go() -> Run:
        clock, events = TestClock(), []
        async with loopback(*answers, routes=routes) as server:
            chat = OpenAIChat(
                server.url, key, transport=HttpTransport({}), clock=clock, timeouts=timeouts, retries=retries
            )
            run = Run(events, server, clock)
            try:
                async for event in chat.stream(asked or request()):
                    events.append(event)  # noqa: PERF401  # those before a failure count
            except LmagentError as error:
                run.error = error
            await chat.aclose()
        return run

    return anyio.run(go)


def sse(*payloads: Any, done: bool = True) -> bytes:
    """A stream of chunks; a dict is a chunk, bytes are sent as they are."""
    parts = [part if isinstance(part, bytes) else b"data: " + json.dumps(part).encode() + b"\n\n" for part in payloads]
    return b"".join(parts) + (b"data: [DONE]\n\n" if done else b"")


def delta(finish: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


def call(arguments: Any = None, **fields: Any) -> dict[str, Any]:
    """An entry of `tool_calls`: `name` and `arguments` go inside, everything else beside."""
    function = {"name": fields.pop("name", None), "arguments": arguments}
    return {"type": "function", "function": {k: v for k, v in function.items() if v is not None}, **fields}


def cut_every(body: bytes, size: int) -> list[bytes]:
    return [body[at : at + size] for at in range(0, len(body), size)]
