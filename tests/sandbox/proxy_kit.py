"""A proxy in a thread of its own, servers on loopback that say what they are told to, and raw clients."""

import socket
import socketserver
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import anyio
from anyio.from_thread import start_blocking_portal

from lmagent.sandbox.proxy import AllowListProxy

TIMEOUT = 30.0
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@dataclass
class Server:
    port: int
    heads: list[bytes] = field(default_factory=list)

    @property
    def at(self) -> str:
        return f"127.0.0.1:{self.port}"


@contextmanager
def serving(talk: Callable[[socket.socket, bytes], None]) -> Iterator[Server]:
    """A server that reads a head, notes it, and lets `talk` do the rest with the connection and what was read on."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.settimeout(TIMEOUT)
            with suppress(OSError):
                head, rest = read_head(self.request)
                server.heads.append(head)
                talk(self.request, rest)

    class Threads(socketserver.ThreadingTCPServer):
        daemon_threads = True
        request_queue_size = 128

    with Threads(("127.0.0.1", 0), Handler) as threads:
        server = Server(threads.server_address[1])
        thread = threading.Thread(target=threads.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            threads.shutdown()
            thread.join()


def answer(data: bytes) -> Callable[[socket.socket, bytes], None]:
    return lambda connection, rest: connection.sendall(data)


def echo(connection: socket.socket, rest: bytes) -> None:
    """Answers with what follows the head, as it comes, until the other side ends."""
    connection.sendall(rest)
    while piece := connection.recv(65536):
        connection.sendall(piece)


def read_head(connection: socket.socket) -> tuple[bytes, bytes]:
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(65536)
        if not piece:
            break
        data += piece
    head, _, rest = data.partition(b"\r\n\r\n")
    return head, rest


@dataclass
class Proxy:
    proxy: AllowListProxy

    @property
    def path(self) -> str:
        return str(self.proxy.path)

    def connect(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(TIMEOUT)
        connection.connect(self.path)
        return connection

    def say(self, data: bytes) -> bytes:
        """Everything that the proxy answers to these bytes."""
        with self.connect() as connection:
            with suppress(OSError):  # it may answer and close before everything is sent
                connection.sendall(data)
            return read_all(connection)

    def get(self, url: str, *headers: str) -> bytes:
        lines = "".join(f"{header}\r\n" for header in headers)
        return self.say(f"GET {url} HTTP/1.1\r\n{lines}\r\n".encode("latin-1"))


def read_all(connection: socket.socket) -> bytes:
    data = b""
    with suppress(ConnectionResetError):
        while piece := connection.recv(65536):
            data += piece
    return data


def status(reply: bytes) -> int:
    return int(reply.split(b" ", 2)[1]) if reply else 0


@asynccontextmanager
async def served(proxy: AllowListProxy) -> AsyncIterator[None]:
    await proxy.start()
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(proxy.serve)
            yield
            group.cancel_scope.cancel()
    finally:
        proxy.close()


@contextmanager
def proxying(*hosts: str, **options: Any) -> Iterator[Proxy]:
    with start_blocking_portal() as portal:
        proxy = AllowListProxy(hosts, **options)
        with portal.wrap_async_context_manager(served(proxy)):
            yield Proxy(proxy)


def resolving(*addresses: str):
    async def resolve(host: str, port: int) -> tuple[str, ...]:
        return addresses

    return resolve
