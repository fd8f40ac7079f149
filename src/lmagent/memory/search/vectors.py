"""The vectors of an index in memory, centred. The only module of the index that needs NumPy at its import."""

from __future__ import annotations

import heapq
import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmagent.memory.search.database import IndexDatabase
from lmagent.memory.search.embedding import Batch

Array = NDArray[np.float32]

SMALL = 50_000
"""Vectors that are held whole. Above, only the sign of each number is, and the best are rescored from the database."""

SAMPLE = 4096
"""Vectors that a mean is computed from."""

RESCORED = 500
"""Vectors, or one of 200 if that is more, whose signs are the nearest: the nearest vectors are among them."""

_SHRINK = 10
"""Vectors of zeros that are added to the mean, which says little about a handful of texts."""


def unit_rows(vectors: Any, count: int) -> Array:
    """Return vectors as rows of length 1. Raise ValueError if they are not `count` vectors of one length."""
    rows = np.asarray(vectors, dtype=np.float32)
    if rows.ndim != 2 or len(rows) != count or not rows.shape[1]:
        raise ValueError(f"{count} vectors were expected, and an array of the shape {rows.shape} was returned")
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    if not np.isfinite(lengths).all():
        raise ValueError("a vector holds a number that is not finite")
    return rows / np.maximum(lengths, 1e-12)


class Vectors:
    """The vectors of one model and dimension, loaded at the first search after a change."""

    def __init__(self, database: IndexDatabase) -> None:
        self._database = database
        self._key: tuple[object, ...] = ()
        self._space = 0
        self._numbers = np.empty(0, np.int64)
        self._slots: dict[int, int] = {}
        self._mean = np.empty(0, np.float32)
        self._rows: NDArray[Any] = np.empty((0, 0), np.float32)  # centred vectors, or packed signs
        self._packed = False

    def pending(self, model: str, after: int, limit: int) -> list[tuple[int, str]]:
        """Return the next items after a number that have no vector of the newest space."""

        def find(connection: sqlite3.Connection) -> list[tuple[int, str]]:
            newest = "SELECT max(number) FROM space WHERE model = ?"
            space = connection.execute(newest, (model,)).fetchone()[0] or -1
            counts = "SELECT (SELECT count(*) FROM item) = (SELECT count(*) FROM vector WHERE space = ?)"
            if connection.execute(counts, (space,)).fetchone()[0]:  # far quicker than looking at each item
                return []
            return connection.execute(
                "SELECT item.number, item.text FROM item LEFT JOIN vector ON vector.number = item.number"
                " WHERE item.number > ? AND vector.space IS NOT ? ORDER BY item.number LIMIT ?",
                (after, space, limit),
            ).fetchall()

        return self._database.read(find)

    def store(self, batch: Batch, rows: Any, model: str) -> None:
        """Write the vectors of items (number and text), except of those whose text has changed meanwhile."""
        data = np.asarray(rows).astype(np.float16)

        def write(connection: sqlite3.Connection) -> None:
            space, centre = _space_for(connection, model, data.shape[1])
            signs = _signs(data.astype(np.float32), centre)
            connection.executemany(
                "INSERT OR REPLACE INTO vector (number, space, signs, data)"
                " SELECT number, ?, ?, ? FROM item WHERE number = ? AND text = ?",
                [(space, bits, row.tobytes(), *item) for bits, row, item in zip(signs, data, batch, strict=True)],
            )
            connection.execute("UPDATE counter SET stamp = stamp + 1")
            if not len(centre):
                _set_centre(connection, space, data.shape[1])

        self._database.write(write)

    def refresh(self, connection: sqlite3.Connection, model: str, dimension: int) -> None:
        """Load the vectors of the newest space if they have changed since the last time."""
        (stamp,) = connection.execute("SELECT stamp FROM counter").fetchone()
        key = (self._database.generation, model, dimension, stamp)
        if key != self._key:
            newest = "SELECT number, centre FROM space WHERE model = ? AND dimension = ? ORDER BY number DESC"
            self._space, centre = connection.execute(newest, (model, dimension)).fetchone() or (-1, b"")
            self._load(connection, np.frombuffer(centre, np.float32), dimension)
            self._key = key

    def nearest(
        self, connection: sqlite3.Connection, query: Array, count: int, allowed: Sequence[int] | None
    ) -> list[int]:
        """Return the numbers of the items whose vectors are nearest; `allowed` restricts them."""
        if not self._packed:
            return self._closest(self._rows @ self._centred(query[None])[0], count, allowed)
        signs = np.packbits(query > self._mean)
        closeness = -_differing_bits(self._rows, signs).astype(np.float32)
        some = self._closest(closeness, max(count, RESCORED, len(self._rows) // 200), allowed)
        cosines = self.cosines(connection, query, some)
        return heapq.nlargest(count, cosines, key=cosines.__getitem__)

    def _closest(self, closeness: Array, count: int, allowed: Sequence[int] | None) -> list[int]:
        if not len(closeness):
            return []
        if allowed is not None:
            closeness[~np.isin(self._numbers, np.asarray(allowed, np.int64))] = -np.inf
        count = min(count, len(closeness))
        best = np.argpartition(-closeness, count - 1)[:count]
        return [int(number) for number in self._numbers[best[np.isfinite(closeness[best])]]]

    def cosines(self, connection: sqlite3.Connection, query: Array, numbers: Iterable[int]) -> dict[int, float]:
        """Return the cosine between the query and each of these items that has a vector, both centred."""
        centred = self._centred(query[None])[0]
        if not self._packed:
            known = [number for number in numbers if number in self._slots]
            values = self._rows[[self._slots[number] for number in known]] @ centred if known else ()
            return dict(zip(known, map(float, values), strict=True))
        marks = ", ".join(map(str, numbers))
        chosen = f"SELECT number, data FROM vector WHERE number IN ({marks}) AND space = {self._space}"
        found = connection.execute(chosen).fetchall()
        values = self._centred(_as_rows([data for _, data in found], len(centred))) @ centred
        return {number: float(value) for (number, _), value in zip(found, values, strict=True)}

    def _load(self, connection: sqlite3.Connection, centre: Array, dimension: int) -> None:
        there = f"FROM vector WHERE space = {self._space}"
        self._packed = len(centre) > 0 and connection.execute(f"SELECT count(*) {there}").fetchone()[0] > SMALL
        if self._packed:
            self._mean = centre
            found = connection.execute(f"SELECT number, signs {there}").fetchall()
            self._rows = np.frombuffer(b"".join([signs for _, signs in found]), np.uint8).reshape(len(found), -1)
        else:
            found = connection.execute(f"SELECT number, data {there}").fetchall()
            rows = _as_rows([data for _, data in found], dimension)
            self._mean = _mean(rows[:: max(1, len(rows) // SAMPLE)])
            self._rows = self._centred(rows)
        self._numbers = np.array([number for number, _ in found], np.int64)
        self._slots = {number: slot for slot, (number, _) in enumerate(found)}

    def _centred(self, rows: Array) -> Array:
        """Return rows without the direction that all texts share, of length 1."""
        moved = rows - self._mean
        return moved / np.maximum(np.linalg.norm(moved, axis=1, keepdims=True), 1e-12)


def _space_for(connection: sqlite3.Connection, model: str, dimension: int) -> tuple[int, Array]:
    """Return the space that new vectors belong to, and its centre; another dimension than before begins a new one."""
    newest = "SELECT number, dimension, centre FROM space WHERE model = ? ORDER BY number DESC"
    found = connection.execute(newest, (model,)).fetchone()
    if found and found[1] == dimension:
        return int(found[0]), np.frombuffer(found[2], np.float32)
    add = "INSERT INTO space (model, dimension) VALUES (?, ?)"
    return int(connection.execute(add, (model, dimension)).lastrowid or 0), np.empty(0, np.float32)


def _set_centre(connection: sqlite3.Connection, space: int, dimension: int) -> None:
    """Give a space its centre, and its vectors their signs, once it has enough vectors."""
    if connection.execute("SELECT count(*) FROM vector WHERE space = ?", (space,)).fetchone()[0] < SAMPLE:
        return
    found = connection.execute("SELECT number, data FROM vector WHERE space = ?", (space,)).fetchall()
    rows = _as_rows([data for _, data in found], dimension)
    centre = _mean(rows)
    connection.execute("UPDATE space SET centre = ? WHERE number = ?", (centre.tobytes(), space))
    connection.executemany(
        "UPDATE vector SET signs = ? WHERE number = ?",
        [(signs, number) for signs, (number, _) in zip(_signs(rows, centre), found, strict=True)],
    )


def _mean(rows: Array) -> Array:
    return rows.sum(axis=0) / np.float32(len(rows) + _SHRINK)


def _signs(rows: Array, centre: Array) -> list[bytes]:
    """Return which numbers are above the centre's, a bit for each; nothing without a centre."""
    if not len(centre):
        return [b""] * len(rows)
    return [bits.tobytes() for bits in np.packbits(rows > centre, axis=1)]


def _as_rows(data: Sequence[bytes], dimension: int) -> Array:
    return np.frombuffer(b"".join(data), np.float16).astype(np.float32).reshape(len(data), dimension)


def _differing_bits(rows: NDArray[np.uint8], signs: NDArray[np.uint8]) -> NDArray[np.int64]:
    different = np.bitwise_xor(rows, signs)
    wide = np.uint64 if different.shape[1] % 8 == 0 else np.uint8
    return np.bitwise_count(different.view(wide)).sum(axis=1, dtype=np.int64)
