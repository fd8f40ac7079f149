"""Listening: a socket on an address, or the reason why not; and the signals that end a server."""

from __future__ import annotations

import ipaddress
import os
import signal
import socket
from collections.abc import Iterable
from typing import Protocol

from lmagent.core.errors import LmagentError

BACKLOG = 1024

GRACE = 10.0  # seconds that running requests have to end when the server is stopped


class ServerError(LmagentError):
    """An error of starting, stopping or reaching a server."""


class EndingServer(Protocol):
    """A server that ends once `should_exit` is set."""

    should_exit: bool


class Signals:
    """The handlers of SIGTERM and SIGINT while uvicorn has none of its own.

    That is before it starts, and once more after it stops: it raises the signal again after a shutdown that went well,
    which must not end us with an error.
    """

    def __init__(self, more: Iterable[signal.Signals] = ()) -> None:
        self._server: EndingServer | None = None
        self._came = False
        for number in (signal.SIGTERM, signal.SIGINT, *more):
            signal.signal(number, self._note)

    def end(self, server: EndingServer) -> None:
        """Let a signal end this server, also a signal that came already."""
        self._server = server
        server.should_exit = self._came

    def _note(self, number: int, frame: object) -> None:
        self._came = True
        if self._server is not None:
            self._server.should_exit = True


def listen(bind: str, port: int) -> socket.socket:
    try:
        family, kind, _, _, address = socket.getaddrinfo(bind, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise ServerError(f"{bind!r} is no address: {error}", fix="--bind takes an address of this machine") from None
    listener = socket.socket(family, kind)
    try:
        if os.name == "posix":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        if isinstance(error, PermissionError):
            fix = "take one above 1023: --port"
        else:
            fix = f"see who has it: ss -ltnp 'sport = :{port}'; or take another: --port {port + 1}"
        raise ServerError(f"cannot listen on {bind} port {port}: {error.strerror}", fix=fix) from None
    return listener


def is_loopback(host: str) -> bool:
    """Tell whether an address or name is this machine's own, which no other machine reaches."""
    name = host.strip("[]").rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
