"""The gateway's server in this process, with routes and limits of the test's own."""

from __future__ import annotations

import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
from gateway_kit import Client, drained
from starlette.responses import Response, StreamingResponse

from lmagent.config.settings import Settings
from lmagent.gateway.http.access import ROUTES as DOOR
from lmagent.gateway.http.access import Access, Done
from lmagent.gateway.http.accessstore import AccessFiles
from lmagent.gateway.http.app import GatewayApp
from lmagent.gateway.http.connections import Caps
from lmagent.gateway.http.guard import GuardRules
from lmagent.gateway.http.route import Call, Patience, Route, Socket, Talk
from lmagent.gateway.http.serving import Serving, ServingLimits, serve
from lmagent.modelserver.http.listening import listen

PIN = "271828"
TOKEN = "a-token-of-the-tests"


NO_LIMITS = ServingLimits(caps=Caps())
PATIENCE = Patience()
LOOPBACK = GuardRules()


class QuietGateway:
    """A gateway that has no sessions: it only runs and ends. Unexpected errors are logged in its workspace."""

    def __init__(self, workspace: Path) -> None:
        self.left = 0.0
        self.forwarder = None
        self.counters: Counter[str] = Counter()
        self.host = SimpleNamespace(workspace=workspace, settings=Settings())

    async def run(self) -> None:
        """Run until cancelled."""
        await anyio.sleep_forever()

    async def end(self) -> None:
        """Take note of when."""
        self.left = time.monotonic()


class Lab(Client):
    """A server in a thread; asked itself, it is asked as a program with the token."""

    def __init__(self, port: int, workspace: Path) -> None:
        super().__init__(port, {"Authorization": f"Bearer {TOKEN}"})
        self.hub = QuietGateway(workspace)
        self.said: list[str] = []
        self.server: Serving
        self.access: Access

    @property
    def anyone(self) -> Client:
        """Somebody without credentials."""
        return Client(self.port)


@contextmanager
def lab(
    folder: Path,
    routes: Sequence[Route] = (),
    sockets: Sequence[Socket] = (),
    *,
    limits: ServingLimits = NO_LIMITS,
    patience: Patience = PATIENCE,
    rules: GuardRules = LOOPBACK,
    bind: str = "127.0.0.1",
    tls: Any = None,
) -> Iterator[Lab]:
    """A running server; what its handlers raise that is no answer is in `said`."""
    listener = listen(bind, 0)
    made = Lab(int(listener.getsockname()[1]), folder)
    made.access = Access(AccessFiles(folder), PIN, TOKEN, secure=tls is not None)
    app = GatewayApp(
        made.hub,  # pyright: ignore[reportArgumentType]
        made.access,
        rules,
        say=made.said.append,
        routes=(*DOOR, OPEN, *routes),
        sockets=sockets,
        patience=patience,
    )
    ready = threading.Event()

    def started(server: Serving) -> None:
        made.server = server
        ready.set()

    run = partial(serve, app, made.hub, listener, limits=limits, tls=tls, started=started)
    thread = threading.Thread(target=anyio.run, args=(run,))
    thread.start()
    try:
        assert ready.wait(10)
        while not made.server.started:
            time.sleep(0.005)
        yield made
    finally:
        made.server.should_exit = True
        thread.join(30)
        listener.close()
        assert not thread.is_alive()


async def answered(call: Call) -> Done:
    return Done()


OPEN = Route("GET", "/healthz", answered, "Answer anybody", answer=Done, is_open=True)
AUTH = f"Host: localhost\r\nAuthorization: Bearer {TOKEN}\r\n".encode()


async def size(call: Call, body: str = "") -> dict[str, int]:
    return {"size": len(body or await call.request.body())}


async def wait(call: Call) -> Done:
    await anyio.sleep(0.5)
    return Done()


async def stream(call: Call) -> Response:
    async def events():
        yield b": hello\n\n"
        await anyio.sleep_forever()

    return StreamingResponse(events(), media_type="text/event-stream")


async def large(call: Call) -> Response:
    async def pieces():
        for _ in range(100):
            yield b"a" * 100_000

    return StreamingResponse(pieces(), media_type="text/plain")


async def half(call: Call) -> Response:
    async def pieces():
        yield b"half"
        raise RuntimeError("then nothing")

    return StreamingResponse(pieces(), media_type="text/plain")


async def echo(talk: Talk) -> None:
    await talk.socket.accept()
    async for text in talk.socket.iter_text():
        await talk.socket.send_text(str(len(text)))


ROUTES = (
    Route("POST", "/api/size", size, "Size of a JSON text", body=str, answer=dict[str, int]),
    Route("POST", "/api/raw", size, "Size", answer=dict[str, int], raw=True, limit=5_000_000),
    Route("GET", "/api/open", large, "Much", media="text/plain", is_open=True),
    Route("GET", "/api/wait", wait, "Wait", answer=Done),
    Route("GET", "/api/stream", stream, "Stream", media="text/event-stream"),
    Route("GET", "/api/half", half, "Half", media="text/plain"),
)


async def silent(talk: Talk) -> None:
    await talk.socket.receive()
    await talk.socket.receive()


SOCKETS = (Socket("/ws/{session}", echo), Socket("/silent", silent))


def opened(running: Lab, sent: bytes = b"", timeout: float = 10) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", running.port), timeout=timeout)
    connection.sendall(sent)
    return connection


def answer_to(running: Lab, *pieces: bytes, gap: float = 0.0) -> bytes:
    """What comes back for what is sent piece by piece, as far as it is taken."""
    with opened(running) as connection:
        try:
            for piece in pieces:
                connection.sendall(piece)
                time.sleep(gap)
        except OSError:
            pass
        return drained(connection)
