"""Loopback: a small HTTP/1.1 server in a thread of its own, for tests that want a real wire.

It speaks just enough HTTP to be a model server for one machine: keep-alive, requests with a Content-Length, answers
also in chunks, and every way of ending badly (cut, reset, hang). It listens on 127.0.0.1 only.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import socket
import struct
import sys
import threading
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from random import sample
from types import TracebackType
from typing import Any, Literal, Self, cast

import msgspec

_BODY_LIMIT = 1 << 28
_JSON = {"Content-Type": "application/json"}


@dataclass(slots=True)
class Received:
    """One received request. The times are `time.monotonic()` seconds; the last two fields are filled in later."""

    method: str  # GET, POST …
    path: str  # the path, without the query
    query: str  # the part after the question mark
    headers: Mapping[str, str]  # header fields; names in lower case
    raw: bytes  # the unchanged body
    body: Any  # the body read as JSON; None if it is not JSON
    connection: int  # number of the connection it came on, from 1
    t_head: float  # the head was complete
    t_body: float  # the body was complete
    t_end: float = 0.0  # the last byte of the answer was handed to the kernel; 0 while it is being answered
    hung_up: bool = False  # the client went away before the answer was complete

    @property
    def fields(self) -> dict[str, Any]:
        """Return the body as a JSON object; empty if it is something else."""
        return json_object(self.body)

    @property
    def messages(self) -> list[dict[str, Any]]:
        """Return the messages of a chat request."""
        return self.fields.get("messages") or []

    @property
    def tool_names(self) -> list[str]:
        """Return the names of the tools that a chat request advertises."""
        tools: list[dict[str, Any]] = self.fields.get("tools") or []
        return [tool["function"]["name"] for tool in tools]


def json_object(value: Any) -> dict[str, Any]:
    """Return the value if it is a JSON object, else an empty one."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


@dataclass(frozen=True, slots=True)
class Pause:
    """Send nothing for `seconds`."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Drop:
    """Close the connection here, in the middle of the answer; with `reset`, so that the client sees a reset."""

    reset: bool = False


@dataclass(frozen=True, slots=True)
class Hang:
    """Keep the connection open and send nothing more, until the client goes away or the server stops."""


Step = bytes | Pause | Drop | Hang
Framing = Literal["chunked", "length", "close"]


@dataclass(frozen=True, slots=True)
class Response:
    """An answer."""

    steps: Sequence[Step] | AsyncIterator[Step]  # pieces of the body, with pauses and faults between them
    status: int = 200  # HTTP status
    headers: Mapping[str, str] = field(default_factory=dict[str, str])  # header fields besides the framing
    framing: Framing = "length"  # how the body's end is marked. `length` joins the pieces and needs a plain sequence
    # steps before the status line (only Pause, Drop and Hang make sense)
    before_head: Sequence[Pause | Drop | Hang] = ()


Handler = Callable[[Received], Awaitable[Response]]


HELD_PORTS = range(20_000, 32_768)
"""Ports that Linux gives to no outgoing connection by default (ip(7), `ip_local_port_range`: 32768 to 60999)."""


@contextlib.contextmanager
def held_port() -> Generator[int]:
    """Reserve a port of 127.0.0.1 for a server that is stopped and restarted.

    Otherwise the port is free for a moment, and Linux may give it to any new connection, which keeps it for a
    minute after its end (ip(7), `ip_local_port_range`; TIME-WAIT of RFC 9293). Here it stays bound, which does not
    prevent a server with SO_REUSEADDR from listening there. On other systems it would, so there it is not bound.

    It lies below the range of outgoing ports, so that none from another address of this machine has its number.
    """
    with socket.socket() as place:
        place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        port = _bound(place)
        if sys.platform != "linux":
            place.close()
        yield port


def _bound(place: socket.socket) -> int:
    """Bind to a port that is free on all addresses; return it."""
    for port in sample(HELD_PORTS, len(HELD_PORTS)):
        with socket.socket() as everywhere, contextlib.suppress(OSError):
            everywhere.bind(("", port))
            everywhere.close()
            place.bind(("127.0.0.1", port))
            return port
    raise OSError(f"no port of {HELD_PORTS} is free")


class _GoneAwayError(Exception):
    """The connection is over: dropped by the script, or by the client."""


class LoopbackServer:
    """Serves `handler` on 127.0.0.1 while the `with` block runs. An error in `handler` is raised at its end.

    Args:
        handler: called in the server's own event loop for every request.
        port: the port; 0 takes a free one.
        finished: called with each request when its answer has been sent, in the server's loop.
    """

    def __init__(self, handler: Handler, *, port: int = 0, finished: Callable[[Received], None] | None = None) -> None:
        self.requests: list[Received] = []
        self.connections = 0
        self.port = port
        self._handler = handler
        self._finished = finished
        self._thread: threading.Thread | None = None
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._failure: OSError | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._errors: list[Exception] = []

    @property
    def url(self) -> str:
        """`http://127.0.0.1:PORT`."""
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="loopback", daemon=True)
        self._thread.start()
        self._ready.wait()
        if self._failure is not None:
            raise self._failure
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._loop is not None and self._stop is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(timeout=5)
        if self._errors and error is None:
            raise self._errors[0]

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        try:
            server = await asyncio.start_server(self._connected, "127.0.0.1", self.port, limit=_BODY_LIMIT)
        except OSError as error:
            self._failure = error
            self._ready.set()
            return
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        for listener in server.sockets:
            self._loop.remove_reader(listener.fileno())
        # lets accepted connections start: a server that is closed before that leaves the socket open
        for _ in range(5):
            await asyncio.sleep(0)
        server.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=2)
        for writer in self._writers:  # their tasks were cancelled before they began
            writer.close()
        for _ in range(3):  # the transports finish closing in later rounds of the loop
            await asyncio.sleep(0)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        self.connections += 1
        task = asyncio.get_running_loop().create_task(self._connection(reader, writer, self.connections))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        try:
            while await self._exchange(reader, writer, number):
                pass
        except (_GoneAwayError, ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the connection ended; the request's record says how
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> bool:
        received = await _read_request(reader, number)
        self.requests.append(received)
        answer = _Answer(reader, writer)
        try:
            keep = await answer.send(await self._respond(received))
            received.t_end = time.monotonic()
        except (_GoneAwayError, ConnectionError, asyncio.CancelledError):
            received.t_end = time.monotonic()
            received.hung_up = answer.hung_up
            raise
        finally:
            if self._finished is not None:
                self._finished(received)
        return keep and received.headers.get("connection", "").lower() != "close"

    async def _respond(self, received: Received) -> Response:
        """Return the handler's answer; its own errors become a 500, are printed, and raised at its close."""
        try:
            return await self._handler(received)
        except Exception as error:  # noqa: BLE001 (the boundary between the server and a test's own function)
            self._errors.append(error)
            traceback.print_exception(error)  # at once: a patient client retries for long before the end
            text = f"the script itself failed: {error!r}"
            return Response((msgspec.json.encode({"error": {"message": text}}),), 500, _JSON)


class _Answer:
    """One answer on its way out."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.hung_up = False

    async def send(self, response: Response) -> bool:
        """Send it; True if the connection can be used again."""
        for step in response.before_head:
            await self._wait(step)
        writer, framing = self._writer, response.framing
        fields = dict(response.headers)
        if framing == "length":
            assert not isinstance(response.steps, AsyncIterator)
            body = b"".join(step for step in response.steps if isinstance(step, bytes))
            fields["Content-Length"] = str(len(body))
        else:
            fields |= {"Transfer-Encoding": "chunked"} if framing == "chunked" else {"Connection": "close"}
        phrase = http.client.responses.get(response.status, "Unknown")
        lines = [f"HTTP/1.1 {response.status} {phrase}", *(f"{name}: {value}" for name, value in fields.items())]
        writer.write("\r\n".join([*lines, "", ""]).encode("latin-1"))
        if isinstance(response.steps, AsyncIterator):
            async for step in response.steps:
                await self._step(step, framing)
        else:
            for step in response.steps:
                await self._step(step, framing)
        if framing == "chunked":
            writer.write(b"0\r\n\r\n")
        await writer.drain()
        return framing != "close"

    async def _step(self, step: Step, framing: Framing) -> None:
        if not isinstance(step, bytes):
            await self._wait(step)
            return
        if self._writer.is_closing() or self._reader.at_eof():
            self.hung_up = True
            raise _GoneAwayError
        if step:  # an empty chunk would end the body
            self._writer.write(b"%x\r\n%b\r\n" % (len(step), step) if framing == "chunked" else step)
            await self._writer.drain()

    async def _wait(self, step: Pause | Drop | Hang) -> None:
        match step:
            case Pause(seconds=seconds):
                await self._writer.drain()
                await asyncio.sleep(seconds)
            case Hang():
                await self._writer.drain()
                self.hung_up = await self._reader.read(1) == b""
                raise _GoneAwayError
            case Drop(reset=reset):
                await self._writer.drain()
                if reset:
                    linger = struct.pack("ii", 1, 0)  # close at once and discard unsent data: a reset
                    plain: socket.socket = self._writer.get_extra_info("socket")
                    plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                raise _GoneAwayError


async def _read_request(reader: asyncio.StreamReader, number: int) -> Received:
    head = await reader.readuntil(b"\r\n\r\n")
    t_head = time.monotonic()
    first, *rest = head[:-4].decode("latin-1").split("\r\n")
    method, target, _ = first.split(" ", 2)
    fields = (line.partition(":") for line in rest)
    headers = {name.strip().lower(): value.strip() for name, _, value in fields}
    raw = await reader.readexactly(int(headers.get("content-length") or 0))
    t_body = time.monotonic()
    path, _, query = target.partition("?")
    body: Any = None
    with contextlib.suppress(msgspec.DecodeError):
        body = msgspec.json.decode(raw) if raw else None
    return Received(method, path, query, headers, raw, body, number, t_head, t_body)
