"""Connections: limits per client and in total, from the first byte of a TLS handshake on.

Beyond the limits, the oldest connection without credentials is dropped.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio.abc
from msgspec import Struct

from lmagent.core.errors import ConfigError

PER_CLIENT = 256  # connections that one address may hold without credentials
RESERVE = 512  # open files that are not connections: logs, pipes of commands, the model server, sockets being accepted
MOST = 20_000  # connections in total, even if the system would allow more


class Connection:
    def __init__(self, transport: Any, ledger: Connections) -> None:
        peer: Any = transport.get_extra_info("peername")
        self.address = str(peer[0]) if peer else ""
        self._transport = transport
        self._ledger = ledger
        self.known = False

    def know(self) -> None:
        """Note that it has shown credentials."""
        if not self.known:
            self.known = True
            self._ledger.admit(self)

    def drop(self) -> None:
        self._transport.abort()

    def gone(self) -> None:
        """Remove it from the ledger; its transport is closed."""
        self._ledger.remove(self)


class Caps(Struct, frozen=True):
    """Limits on connections: per address without credentials, and in total."""

    client: int = PER_CLIENT
    total: int = MOST


class Connections:
    """The open connections; `dropped` counts those closed because of the limits."""

    def __init__(self, caps: Caps) -> None:
        self._caps = caps
        self._all: set[Connection] = set()
        self._strangers: dict[Connection, None] = {}  # the oldest first
        self._by_address: Counter[str] = Counter()
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._all)

    def add(self, connection: Connection) -> None:
        """Add a connection, and drop the oldest one without credentials if there are too many."""
        self._all.add(connection)
        self._strangers[connection] = None
        self._by_address[connection.address] += 1
        if self._by_address[connection.address] > self._caps.client:
            self._drop(next(other for other in self._strangers if other.address == connection.address))
        elif len(self._all) > self._caps.total:
            self._drop(next(iter(self._strangers)))

    def admit(self, connection: Connection) -> None:
        """Exempt a connection from being dropped: it has shown credentials."""
        if connection in self._strangers:
            del self._strangers[connection]
            self._by_address[connection.address] -= 1
            if not self._by_address[connection.address]:
                del self._by_address[connection.address]

    def remove(self, connection: Connection) -> None:
        self._all.discard(connection)
        self.admit(connection)

    def _drop(self, connection: Connection) -> None:
        self.dropped += 1
        self.remove(connection)
        connection.drop()


def raise_limit() -> int:
    """Raise this process's limit of open files; return how many connections that leaves room for."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return MOST
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST + RESERVE if hard == resource.RLIM_INFINITY else min(hard, MOST + RESERVE)
    if wanted > soft:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
        except (OSError, ValueError):  # macOS names a hard limit that the kernel does not grant
            pass
    return max(64, min(MOST, soft - RESERVE))


# --- TLS --------------------------------------------------------------------------------------------------------------


class Knock(asyncio.Protocol):
    """A connection during its handshake; `make` makes the protocol that takes over."""

    def __init__(
        self,
        make: Callable[[], Any],
        ledger: Connections,
        context: ssl.SSLContext,
        tasks: anyio.abc.TaskGroup,
        seconds: float,
    ) -> None:
        self._make = make
        self._ledger = ledger
        self._context = context
        self._tasks = tasks
        self._seconds = seconds
        self._early = b""
        self._is_lost = False

    def connection_made(self, transport: Any) -> None:
        """Pause reading until the handshake reads."""
        transport.pause_reading()
        self._connection = Connection(transport, self._ledger)
        self._ledger.add(self._connection)
        self._tasks.start_soon(self._greet, transport)

    def data_received(self, data: bytes) -> None:
        """Keep the bytes that arrive together with the end of the handshake."""
        self._early += data

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_lost = True
        self._connection.gone()

    async def _greet(self, transport: Any) -> None:
        loop = asyncio.get_running_loop()
        try:
            secure = await loop.start_tls(
                transport, self, self._context, server_side=True, ssl_handshake_timeout=self._seconds
            )
        except OSError:  # not TLS, an unsupported version, too slow, or gone
            transport.abort()
            self._connection.gone()
            return
        if secure is None or self._is_lost:
            return
        speaker = self._make()
        speaker.connection = self._connection
        secure.set_protocol(speaker)
        speaker.connection_made(secure)
        if self._early:
            speaker.data_received(self._early)


def tls_of(cert: Path, key: Path | None) -> ssl.SSLContext:
    """Return the context for a certificate chain and its key (None if the same file has it), both PEM."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(cert, key, password=lambda: b"")
    except OSError as error:  # includes ssl.SSLError
        text = f"TLS cannot be served with {cert}{f' and {key}' if key else ''}: {error.strerror or error}"
        fix = "AGENT_CERT and AGENT_KEY (--cert, --key) name PEM files that belong together, without a passphrase"
        raise ConfigError(text, fix=fix) from None
    return context
