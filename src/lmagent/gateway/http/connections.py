"""Connections: limits per client and in total, and which connection is dropped beyond them.

Only connections without credentials are dropped, the oldest first, so that a new client is served however many sockets
others hold open.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from msgspec import Struct

PER_CLIENT = 256
"""Connections that one address may hold without credentials."""

RESERVE = 512
"""Open files that are not connections: logs, pipes of commands, the model server, sockets being accepted."""

MOST = 20_000
"""Connections in total, even if the system would allow more."""


class Connection:
    def __init__(self, transport: Any, ledger: Connections) -> None:
        peer: Any = transport.get_extra_info("peername")
        self.address = str(peer[0]) if peer else ""
        self._transport = transport
        self._ledger = ledger
        self._known = False

    @property
    def known(self) -> bool:
        """Whether it has shown credentials."""
        return self._known

    @known.setter
    def known(self, known: bool) -> None:
        if known and not self._known:
            self._known = True
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
        self._strangers: OrderedDict[Connection, None] = OrderedDict()
        self._by_address: dict[str, OrderedDict[Connection, None]] = {}
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._all)

    def add(self, connection: Connection) -> None:
        """Add a connection, and drop the oldest one without credentials if there are too many."""
        self._all.add(connection)
        self._strangers[connection] = None
        same = self._by_address.setdefault(connection.address, OrderedDict())
        same[connection] = None
        if len(same) > self._caps.client:
            self._drop(next(iter(same)))
        elif len(self._all) > self._caps.total:
            self._drop(next(iter(self._strangers)))

    def admit(self, connection: Connection) -> None:
        """Exempt a connection from being dropped: it has shown credentials."""
        self._forget(connection)

    def remove(self, connection: Connection) -> None:
        self._all.discard(connection)
        self._forget(connection)

    def _drop(self, connection: Connection) -> None:
        self.dropped += 1
        self.remove(connection)
        connection.drop()

    def _forget(self, connection: Connection) -> None:
        self._strangers.pop(connection, None)
        same = self._by_address.get(connection.address)
        if same is not None:
            same.pop(connection, None)
            if not same:
                del self._by_address[connection.address]


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
