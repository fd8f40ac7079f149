"""Who has gone when the answer is there has not taken it."""

from __future__ import annotations

import socket

import anyio
import pytest
from gateway_kit import Client
from serving_kit import lab
from starlette.requests import Request

from lmagent.gateway.http.access import Done
from lmagent.gateway.http.route import Call, Route
from lmagent.gateway.turns import while_there

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_who_goes_while_the_answer_is_made_is_not_given_it():
    gone = anyio.Event()

    async def receive() -> dict[str, str]:
        await gone.wait()
        return {"type": "http.disconnect"}

    async def work() -> str:
        gone.set()
        return "the answer"

    assert await while_there(Request({"type": "http"}, receive), work) is None


def test_so_is_a_real_client_that_goes_in_the_last_moment(tmp_path):
    made: list[str | None] = []
    clients: list[socket.socket] = []

    async def last(call: Call) -> Done:
        async def work() -> str:
            clients[-1].close()  # the event loop has not looked at its sockets since
            return "the answer"

        made.append(await while_there(call.request, work))
        return Done()

    with lab(tmp_path, [Route("GET", "/api/last", last, "Last", answer=Done)]) as running:
        for _ in range(20):
            clients.append(socket.create_connection(("127.0.0.1", running.port)))
            token = running.headers["Authorization"]
            clients[-1].sendall(f"GET /api/last HTTP/1.1\r\nHost: localhost\r\nAuthorization: {token}\r\n\r\n".encode())
            while len(made) < len(clients):
                assert Client(running.port, running.headers).ask("GET", "/healthz").status == 200
    assert made == [None] * 20
