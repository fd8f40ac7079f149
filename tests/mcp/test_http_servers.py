"""Servers at an address that refuse, fail, or send too much: one line each, with the next thing to do."""

from __future__ import annotations

import json
import socket
from collections.abc import Generator
from contextlib import contextmanager

import pytest
from mcp_kit import Opened, QuietHandler, Watcher, listening, run

from lmagent.core.errors import ConfigError, ToolError
from lmagent.mcp.spec import ServerSpec


@contextmanager
def answering(status: int, body: bytes = b"", kind: str = "application/json") -> Generator[tuple[str, list[str]]]:
    """A server that answers all requests alike; yields its address and the Authorization headers that it got."""
    keys: list[str] = []

    class Handler(QuietHandler):
        def do_POST(self) -> None:
            keys.append(self.headers.get("Authorization", ""))
            self.rfile.read(int(self.headers["Content-Length"]))
            self.answer(status, body, kind)

    with listening(Handler) as address:
        yield f"{address}mcp?key=s3cret", keys


def failed(opened: Opened, url: str, **options: object) -> tuple[str, str, str]:
    """Return the status, reason and fix of a server that cannot be used."""
    servers = opened.servers(ServerSpec("far", url=url, **options))  # type: ignore[arg-type]

    async def work() -> None:
        with pytest.raises(ToolError, match="the server far cannot be used") as failure:
            await servers.call("far", "echo", {}, Watcher())
        assert "\n" not in str(failure.value)
        assert "s3cret" not in str(failure.value)

    run(work)
    found = servers.states()[0]
    return found.status, found.reason, found.fix


def test_a_server_that_wants_a_login_says_what_to_type(opened: Opened) -> None:
    with answering(401) as (url, _):
        status, reason, fix = failed(opened, url)
    assert (status, fix) == ("login", "lmagent mcp login far")
    assert reason.endswith("asks for a login")


def test_the_headers_of_the_entry_are_sent(opened: Opened) -> None:
    with answering(403) as (url, keys):
        status, reason, _ = failed(opened, url, headers={"Authorization": "Bearer mine"})
    assert set(keys) == {"Bearer mine"}
    assert status == "login"
    assert "refuses access" in reason


def test_a_login_that_has_expired_is_said_in_its_own_words(opened: Opened) -> None:
    import httpx2

    class Expired(httpx2.Auth):
        def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response]:
            yield request
            raise ConfigError("the login to far has expired", fix="lmagent mcp login far")

    opened.auth = lambda _spec, _data, **_: Expired()
    with answering(401) as (url, _):
        status, reason, fix = failed(opened, url)
    assert (status, reason, fix) == ("login", "the login to far has expired", "lmagent mcp login far")


def test_a_port_that_nobody_listens_on(opened: Opened) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    status, reason, fix = failed(opened, f"http://127.0.0.1:{port}/mcp?key=s3cret")
    assert status == "failed"
    assert reason.startswith(f"nothing answers at http://127.0.0.1:{port}: ")
    assert fix.startswith("check that it runs")


@pytest.mark.parametrize(
    ("status", "body", "kind", "said"),
    [
        (500, b"oops", "text/plain", "answers 500 Internal Server Error"),
        (404, b"", "text/plain", "answers 404 Not Found"),
        (200, b"<html>", "text/html", "Unexpected content type"),
        (200, b"{", "application/json", "Failed to parse JSON"),
        (200, b'{"jsonrpc": "2.0", "id": 1, "result": {}}', "application/json", "not ready within"),
        (200, json.dumps(["x" * 17_000_000]).encode(), "application/json", "an answer of more than 16 MB"),
    ],
    ids=["500", "404", "a page", "broken", "nonsense", "huge"],
)
def test_an_answer_that_is_none_of_the_protocol(opened: Opened, status: int, body: bytes, kind: str, said: str) -> None:
    with answering(status, body, kind) as (url, _):
        found, reason, _ = failed(opened, url, start_timeout=3.0)
    assert found == "failed"
    assert said in reason or "the protocol does not allow" in reason
