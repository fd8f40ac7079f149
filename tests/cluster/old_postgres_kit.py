"""A proxy to PostgreSQL that lets the server report an older version, as its clients learn it when they connect."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

_REPORTED = re.compile(rb"(server_version\0)\d\d")


@contextmanager
def old_postgres(url: str, version: int = 12) -> Iterator[str]:
    """Yield a URL of the same database, whose server reports this major version of two digits."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = (parts.hostname, parts.port)
        threading.Thread(target=_serve, args=(listening, address, str(version).encode()), daemon=True).start()
        host = f"{parts.username}@127.0.0.1:{listening.getsockname()[1]}"
        yield parts._replace(netloc=host, query="sslmode=disable&gssencmode=disable").geturl()


def _serve(listening: socket.socket, address: tuple[str, int], version: bytes) -> None:
    while True:
        try:
            client, _ = listening.accept()
        except OSError:
            return
        server = socket.create_connection(address)
        threading.Thread(target=_pass, args=(client, server, b""), daemon=True).start()
        threading.Thread(target=_pass, args=(server, client, version), daemon=True).start()


def _pass(source: socket.socket, target: socket.socket, version: bytes) -> None:
    """Pass bytes on until one side ends; the first answers of a server have its version."""
    with suppress(OSError), source, target:
        while content := source.recv(65536):
            target.sendall(_REPORTED.sub(rb"\g<1>" + version, content) if version else content)
