"""Access: the logins of all gateways of a cluster, in the database. It is the gateway's `AccessStore`."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

import msgspec

from lmagent.cluster.database import Connection, Database, only_row, time_of
from lmagent.core.decoding import decode_json
from lmagent.core.errors import StoreError

REFRESH = 1.0
"""Seconds between two reads of the revoked cookies."""

STALE = 10.0
"""Age in seconds of the last read after which no cookie counts. A restart of the database is shorter."""

PATIENCE = 5.0
"""Seconds for which a request waits for a lost database."""

_KEEP = """
    INSERT INTO access (name, value) VALUES (%s, %s)
    ON CONFLICT (name) DO UPDATE SET name = excluded.name RETURNING value"""
_REVOKE = """
    INSERT INTO access_revoked (number, until) VALUES (%s, clock_timestamp() + make_interval(secs => %s))
    ON CONFLICT DO NOTHING"""
_ADD_LINK = """
    INSERT INTO access_link (digest, until) VALUES (%s, clock_timestamp() + make_interval(secs => %s))
    ON CONFLICT DO NOTHING"""


class AccessTables:
    """Secrets, revoked cookies, links and used tries that all gateways on a database share.

    A thread reads the revoked cookies, with a connection of its own, until `close`.

    Raises StoreError: the database cannot be used.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._revoked = frozenset[str]()
        self._revoked_here = set[str]()  # a read that began before the commit does not have these
        self._read_at = -math.inf
        self._ends = threading.Event()
        database.run(self._read)
        threading.Thread(target=database.repeat, args=(self._read, REFRESH, self._ends), daemon=True).start()

    def keep(self, name: str, fresh: str) -> str:
        return str(self._database.rows(_KEEP, (name, fresh))[0][0])

    def revoke(self, number: str, seconds: float) -> None:
        def work(connection: Connection) -> None:
            connection.execute("DELETE FROM access_revoked WHERE until < clock_timestamp()")
            connection.execute(_REVOKE, (number, seconds))

        self._database.run(work, patience=PATIENCE)
        self._revoked_here.add(number)

    def is_revoked(self, number: str) -> bool:
        if time.monotonic() - self._read_at > STALE:
            text = f"the database {self._database.place} has not answered for {STALE:g} s, so no browser is let in"
            raise StoreError(text, fix="start PostgreSQL: lmagent cluster doctor")
        return number in self._revoked_here or number in self._revoked

    def add_link(self, digest: bytes, seconds: float) -> None:
        def work(connection: Connection) -> None:
            connection.execute("DELETE FROM access_link WHERE until < clock_timestamp()")
            connection.execute(_ADD_LINK, (digest, seconds))

        self._database.run(work, patience=PATIENCE)

    def use_link(self, digest: bytes) -> bool:
        query = "DELETE FROM access_link WHERE digest = %s RETURNING until > clock_timestamp()"
        return (True,) in self._database.rows(query, (digest,), patience=PATIENCE)

    def share_tries(self, change: Callable[[dict[str, float], float], float]) -> float:
        def work(connection: Connection) -> float:
            with connection.transaction():
                (value,) = only_row(connection, _KEEP, ("tries", "{}"))  # locks the row
                whole = decode_json(str(value), dict[str, float])
                result = change(whole, time_of(connection))
                after = msgspec.json.encode(whole).decode()
                connection.execute("UPDATE access SET value = %s WHERE name = 'tries'", (after,))
                return result

        return self._database.run(work, patience=PATIENCE)

    def close(self) -> None:
        """End the thread. No cookie counts afterwards."""
        self._ends.set()
        self._read_at = -math.inf

    def _read(self, connection: Connection) -> None:
        began = time.monotonic()
        rows = connection.execute("SELECT number FROM access_revoked").fetchall()
        self._revoked, self._read_at = frozenset(str(number) for (number,) in rows), began
