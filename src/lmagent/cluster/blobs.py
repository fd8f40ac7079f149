"""Blobs of a session: big content, named by its SHA-256. Small ones are in the table, large ones in object storage.

Without `cluster_objects`, all are in the table. An object is written before the row that names it. Its key has the
database, the workspace and the hash, so sessions of a workspace with the same content share one object.

An object without a blob is deleted by `prune`. The table `object` makes this safe: a writer renews the object's row
before it writes the object, and `prune` holds that row while it deletes. So the writer either keeps the object, or
waits and writes it again. A blob cannot name an object whose row is gone, since its column is a foreign key.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from lmagent.cluster.database import Connection, Database
from lmagent.core.errors import StoreError

if TYPE_CHECKING:
    from lmagent.cluster.objects import ObjectStorage

LARGEST = 256 * 1024 * 1024
"""Bytes of a blob, at most: it is sent as a whole."""

LARGE = 64 * 1024
"""Bytes from which a blob is an object. A row of this size was written in 8 ms and read in 1 ms, and most results are
smaller; a request to object storage takes 10 to 50 ms. A row of 1 MB took 22 ms and 8 ms, and is written again into the
database's log, replicas and backups."""

BATCH = 500
"""Objects that are deleted in one transaction."""

_HANDLE = re.compile(r"[0-9a-f]{8,64}")
_PUT = (
    "INSERT INTO blob (session, sha256, size, content, object) VALUES (%s, %s, %s, %b, %s) "
    "ON CONFLICT (session, sha256) DO NOTHING"
)
# Keeps an object from being deleted for the next day.
_WANT = (
    "INSERT INTO object (key) SELECT concat(mark, '/', %s::text) FROM cluster "
    "ON CONFLICT (key) DO UPDATE SET wanted = clock_timestamp() RETURNING key"
)
_FORGET = """
DELETE FROM object WHERE key IN (
    SELECT key FROM object
    WHERE wanted < clock_timestamp() - interval '1 day' AND NOT EXISTS (SELECT FROM blob WHERE blob.object = key)
    LIMIT %s FOR UPDATE SKIP LOCKED)
RETURNING key
"""


class ClusterBlobs:
    """Blobs of the sessions of a workspace.

    Args:
        workspace: its name in the cluster.
        objects: where large blobs are; without it, all are in the table.
    """

    def __init__(self, database: Database, workspace: str, objects: ObjectStorage | None) -> None:
        self._database = database
        self._workspace = workspace
        self._objects = objects

    def put(self, session: int, content: bytes) -> str:
        """Keep `content` for the session of this number, and return its SHA-256. Raise StoreError."""
        sha256 = hashlib.sha256(content).hexdigest()
        size = len(content)
        if size > LARGEST:
            raise StoreError(f"a result of {size / 2**20:.0f} MB is too large: a cluster keeps up to 256 MB")
        if self._objects is None or size < LARGE:
            row = (session, sha256, size, content, None)
        else:
            wanted = (f"{quote(self._workspace, safe='')}/{sha256}",)
            key = str(self._database.rows(_WANT, wanted)[0][0])
            self._objects.put(key, content)
            row = (session, sha256, size, None, key)
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
        rows = self._database.rows("SELECT sha256 FROM blob WHERE session = %s", (session,))
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
        sha256, content, key = found[0]
        place = ""
        if key:
            place, content = self._object(handle, key)
        if hashlib.sha256(content).hexdigest() != sha256:
            raise StoreError(f"artifact {handle} is damaged: its content{place} no longer matches its hash")
        return content

    def _object(self, handle: str, key: str) -> tuple[str, bytes]:
        """Return where an object is, for a message, and its content. Raise StoreError."""
        if self._objects is None:
            raise StoreError(
                f"artifact {handle} is in object storage, and cluster_objects is not set",
                fix="set cluster_objects and the AWS_ variables as the workers have them",
            )
        content = self._objects.get(key)
        if content is None:
            raise StoreError(
                f"artifact {handle} is missing: there is no object {self._objects.name(key)}",
                fix="bring the object back from a backup, or set cluster_objects to the address where it is",
            )
        return f" in {self._objects.name(key)}", content

    def prune(self) -> None:
        """Delete the objects that no blob names and no writer wanted for a day. Raise StoreError."""
        if self._objects is not None:
            while self._database.run(self._forget) == BATCH:
                pass

    def _forget(self, connection: Connection) -> int:
        assert self._objects is not None
        with connection.transaction():
            keys = [str(key) for (key,) in connection.execute(_FORGET, (BATCH,))]
            if keys:
                self._objects.delete(keys)
        return len(keys)


def _find(connection: Connection, session: int, prefix: str) -> list[tuple[str, bytes, str]]:
    query = "SELECT sha256, content, object FROM blob WHERE session = %s AND sha256 BETWEEN %s AND %s LIMIT 2"
    rows = connection.execute(query, (session, prefix, prefix + "g"), binary=True).fetchall()
    return [(str(sha256), bytes(content or b""), str(key or "")) for sha256, content, key in rows]
