"""Loopback: receives the browser's redirect at the end of a login (RFC 8252), once."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from urllib.parse import parse_qs, urlsplit

import anyio
from anyio.abc import SocketStream
from msgspec import Struct

from lmagent.core.errors import ungrouped

PATH = "/callback"
LONGEST = 16_384
"""Bytes of a request that are read; a redirect is shorter."""

HEAD_SECONDS = 10.0


class Redirect(Struct, frozen=True):
    """The parameters of a redirect."""

    code: str = ""
    state: str = ""
    iss: str | None = None
    error: str = ""
    detail: str = ""


def parse_redirect(address: str) -> Redirect:
    """Return the parameters of an address to which the browser was sent."""
    values = {name: found[0] for name, found in parse_qs(urlsplit(address.strip()).query).items()}
    return Redirect(
        code=values.get("code", ""),
        state=values.get("state", ""),
        iss=values.get("iss"),
        error=values.get("error", ""),
        detail=values.get("error_description", ""),
    )


class Receiver:
    """Waits for the redirect whose state is the expected one; others are refused and change nothing."""

    def __init__(self, port: int) -> None:
        self.address = f"http://127.0.0.1:{port}{PATH}"
        self._state = ""
        self._found: Redirect | None = None
        self._is_found = anyio.Event()

    def expect(self, state: str) -> None:
        self._state = state

    def offer(self, redirect: Redirect) -> bool:
        """Take a redirect, and return whether it is the expected one. It is taken once."""
        is_ours = bool(self._state) and secrets.compare_digest(redirect.state.encode(), self._state.encode())
        if not is_ours or not (redirect.code or redirect.error) or self._found is not None:
            return False
        self._found = redirect
        self._is_found.set()
        return True

    async def redirect(self) -> Redirect:
        await self._is_found.wait()
        assert self._found is not None
        return self._found

    async def serve(self, stream: SocketStream) -> None:
        """Answer one request of a browser."""
        async with stream:
            try:
                with anyio.fail_after(HEAD_SECONDS):
                    await stream.send(self._answer(await _head(stream)))
            except (TimeoutError, OSError, anyio.EndOfStream, anyio.BrokenResourceError):
                return

    def _answer(self, head: bytes) -> bytes:
        method, _, rest = head.partition(b"\r\n")[0].decode("latin-1").partition(" ")
        target = rest.partition(" ")[0]
        if method != "GET" or not target.startswith(PATH + "?"):
            return _page("404 Not Found", "There is nothing here.")
        redirect = parse_redirect(target)
        if not self.offer(redirect):
            return _page("400 Bad Request", "This is not the login that lmagent waits for. Start the login again.")
        result = "The login was refused." if redirect.error else "lmagent has received the login."
        return _page("200 OK", f"{result} You can close this window.")


@asynccontextmanager
async def listening(port: int = 0) -> AsyncGenerator[Receiver]:
    """Listen on 127.0.0.1 as long as the block runs. Raises OSError if the port is taken."""
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=port)
    receiver = Receiver(listener.extra(anyio.abc.SocketAttribute.local_port))
    with ungrouped():
        async with listener, anyio.create_task_group() as group:
            group.start_soon(listener.serve, receiver.serve)
            yield receiver
            await anyio.sleep(0.05)  # the answer to the browser is under way
            group.cancel_scope.cancel()


async def _head(stream: SocketStream) -> bytes:
    head = b""
    while b"\r\n\r\n" not in head and len(head) < LONGEST:
        head += await stream.receive(LONGEST)
    return head


def _page(status: str, text: str) -> bytes:
    body = f"<!doctype html><meta charset=utf-8><title>lmagent</title><p>{text}</p>".encode()
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
        "Content-Security-Policy: default-src 'none'\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
