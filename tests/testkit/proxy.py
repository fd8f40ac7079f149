"""A TCP proxy whose connections a test can cut."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress


class CutProxy:
    """Forwards from `address` to a port of loopback until it is closed; it listens `at` a port, or at a free one."""

    def __init__(self, port: int, at: int = 0, address: str = "127.0.0.1") -> None:
        self._to = port
        self._server = socket.create_server((address, at))
        self.port = int(self._server.getsockname()[1])
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Close all connections. New ones are possible at once."""
        open, self._open = self._open, []
        for end in open:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def close(self) -> None:
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self.cut()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                here, _ = self._server.accept()
                try:
                    there = socket.create_connection(("127.0.0.1", self._to))
                except OSError:
                    here.close()
                    continue
                self._open += [here, there]
                for source, target in ((here, there), (there, here)):
                    threading.Thread(target=_forward, args=(source, target), daemon=True).start()


def _forward(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while content := source.recv(65536):
            target.sendall(content)
    for end in (source, target):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
