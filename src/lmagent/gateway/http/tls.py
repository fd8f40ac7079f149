"""TLS: the handshake of connections, counted from their first byte, and the certificate files."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, cast

import anyio.abc

from lmagent.core.errors import ConfigError
from lmagent.gateway.http.connections import Connection, Connections


class Speaker(Protocol):
    """The protocol that takes over after the handshake."""

    connection: Connection | None

    def connection_made(self, transport: Any) -> None: ...

    def data_received(self, data: bytes) -> None: ...


class Knock(asyncio.Protocol):
    """A connection during its handshake; `make` makes the protocol that takes over."""

    def __init__(
        self,
        make: Callable[[], Speaker],
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
        secure.set_protocol(cast("Any", speaker))
        speaker.connection_made(secure)
        if self._early:
            speaker.data_received(self._early)


def tls_of(cert: Path, key: Path | None) -> ssl.SSLContext:
    """Return the context for a certificate chain and its key (None if the same file has it), both PEM.

    Raises:
        ConfigError: a file cannot be read, or they do not belong together.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(cert, key, password=lambda: b"")
    except OSError as error:  # includes ssl.SSLError
        text = f"TLS cannot be served with {cert}{f' and {key}' if key else ''}: {error.strerror or error}"
        fix = "AGENT_CERT and AGENT_KEY (--cert, --key) name PEM files that belong together, without a passphrase"
        raise ConfigError(text, fix=fix) from None
    return context
