"""Blobs of a session in the tables: big content, named by its SHA-256."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

from lmagent.cluster.database import Connection, Database
from lmagent.core.errors import StoreError

LARGEST = 256 * 1024 * 1024
"""Bytes of a blob in the tables, at most: PostgreSQL sends a value as a whole."""

_HANDLE = re.compile(r"[0-9a-f]{8,64}")
_PUT = (
    "INSERT INTO blob (session, sha256, size, content) VALUES (%s, %s, %s, %b) ON CONFLICT (session, sha256) DO NOTHING"
)


class ClusterBlobs:
    def __init__(self, database: Database) -> None:
        self._database = database

    def put(self, session: int, content: bytes) -> str:
        """Keep `content` for the session of this number, and return its SHA-256. Raise StoreError."""
        sha256 = hashlib.sha256(content).hexdigest()
        if len(content) > LARGEST:
            raise StoreError(f"a result of {len(content) / 1e6:.0f} MB is too large for the database")
        row = (session, sha256, len(content), content)
        self._database.run(lambda connection: connection.execute(_PUT, row))
        return sha256

    def adopt(self, session: int, path: Path) -> str:
        """Move a file into the blobs and return its SHA-256. Raise StoreError if it could not be moved."""
        from lmagent.store.files import store_error

        try:
            sha256 = self.put(session, path.read_bytes())
            path.unlink()
        except OSError as error:
            raise store_error(error, "a large result could not be kept", path) from error
        return sha256

    def all(self, session: int) -> Iterator[bytes]:
        """Yield the contents of a session's blobs. Raise StoreError if one is damaged."""
        query = "SELECT sha256 FROM blob WHERE session = %s"
        rows = self._database.run(lambda connection: connection.execute(query, (session,)).fetchall())
        return (self.get(session, str(sha256)) for (sha256,) in rows)

    def get(self, session: int, handle: str) -> bytes:
        """Return the content of a blob, by its hash or a unique prefix of at least 8 hexadecimal digits.

        Raises StoreError if the blob does not exist, or its content no longer matches its hash.
        """
        prefix = handle.strip().lower()
        if not _HANDLE.fullmatch(prefix):
            raise StoreError(f"{handle!r} names no artifact", fix="use at least 8 digits of its hash")
        found = self._database.run(lambda connection: _find(connection, session, prefix))
        if not found:
            raise StoreError(f"there is no artifact {handle}")
        if len(found) > 1:
            raise StoreError(f"{len(found)} artifacts begin with {handle}", fix="use more digits of its hash")
        sha256, content = found[0]
        if hashlib.sha256(content).hexdigest() != sha256:
            raise StoreError(f"artifact {handle} is damaged: its content no longer matches its hash")
        return content


def _find(connection: Connection, session: int, prefix: str) -> list[tuple[str, bytes]]:
    query = "SELECT sha256, content FROM blob WHERE session = %s AND sha256 BETWEEN %s AND %s LIMIT 2"
    rows = connection.execute(query, (session, prefix, prefix + "g"), binary=True).fetchall()
    return [(str(sha256), bytes(content)) for sha256, content in rows]
