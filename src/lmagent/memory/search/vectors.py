"""The vectors of an index in memory, centred. The only module of the index that needs NumPy at its import."""

from __future__ import annotations

import heapq
import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmagent.memory.search.database import IndexDatabase

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
    """The vectors of one model and dimension, loaded at the first search and then kept up to date."""

    def __init__(self, database: IndexDatabase) -> None:
        self._database = database
        self._key: tuple[object, ...] = ()
        self._spaces = ""
        self._stamp = 0
        self._count = self._loaded = 0
        self._numbers = np.empty(0, np.int64)
        self._slots: dict[int, int] = {}
        self._mean = np.empty(0, np.float32)
        self._rows: NDArray[Any] = np.empty((0, 0), np.float32)  # centred vectors, or packed signs
        self._packed = False

    def store(self, batch: Sequence[tuple[int, str]], rows: Sequence[Any], model: str, pooling: str) -> None:
        """Write the vectors of items (number and text), except of those whose text has changed meanwhile."""
        vectors = np.asarray(rows)
        data = vectors.astype(np.float16)

        def write(connection: sqlite3.Connection) -> None:
            space, centre = _space_for(connection, model, pooling, vectors.shape[1])
            stamp = next_stamp(connection)
            signs = _signs(data.astype(np.float32), centre)
            connection.executemany(
                "INSERT OR REPLACE INTO vector (number, space, stamp, signs, data)"
                " SELECT number, ?, ?, ?, ? FROM item WHERE number = ? AND text = ?",
                [
                    (space, stamp, bits, row.tobytes(), *item)
                    for bits, row, item in zip(signs, data, batch, strict=True)
                ],
            )
            if not len(centre):
                _set_centre(connection, space, vectors.shape[1])

        self._database.write(write)

    def refresh(self, connection: sqlite3.Connection, model: str, dimension: int) -> None:
        """Load the new vectors; all of them if their number has grown by a quarter, so that the mean fits."""
        spaces = [
            number
            for (number,) in connection.execute(
                "SELECT number FROM space WHERE model = ? AND dimension = ?", (model, dimension)
            )
        ]
        key = (self._database.generation, model, dimension)
        self._spaces = f"({', '.join(map(str, spaces))})"
        (stamp,) = connection.execute("SELECT stamp FROM counter").fetchone()
        if key == self._key and stamp == self._stamp:
            return
        new = "SELECT count(*) FROM vector WHERE stamp > ?"
        if key != self._key or connection.execute(new, (self._stamp,)).fetchone()[0] > max(self._loaded // 4, 64):
            self._load(connection, dimension)
        else:
            changed = f"SELECT number, data FROM vector WHERE stamp > ? AND (space = 0 OR space IN {self._spaces})"
            for number, data in connection.execute(changed, (self._stamp,)):
                self._put(number, data)
        self._key, self._stamp = key, stamp

    def nearest(
        self, connection: sqlite3.Connection, query: Array, count: int, allowed: Sequence[int] | None
    ) -> list[int]:
        """Return the numbers of the items whose vectors are nearest; `allowed` restricts them."""
        if not self._packed:
            return self._closest(self._rows[: self._count] @ self._centred(query[None])[0], count, allowed)
        signs = np.packbits(query > self._mean)
        closeness = -_differing_bits(self._rows[: self._count], signs).astype(np.float32)
        some = self._closest(closeness, max(count, RESCORED, self._count // 200), allowed)
        cosines = self.cosines(connection, query, some)
        return heapq.nlargest(count, cosines, key=cosines.__getitem__)

    def _closest(self, closeness: Array, count: int, allowed: Sequence[int] | None) -> list[int]:
        if not self._count:
            return []
        if allowed is not None:
            closeness[~np.isin(self._numbers[: self._count], np.asarray(allowed, np.int64))] = -np.inf
        count = min(count, self._count)
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
        chosen = f"SELECT number, data FROM vector WHERE number IN ({marks})  AND space IN {self._spaces}"
        found = connection.execute(chosen).fetchall()
        values = self._centred(_as_rows([data for _, data in found], len(centred))) @ centred
        return {number: float(value) for (number, _), value in zip(found, values, strict=True)}

    def drop(self, numbers: Iterable[int]) -> None:
        """Forget the vectors of items that were removed or changed."""
        for number in numbers:
            if (slot := self._slots.pop(number, None)) is not None:
                self._rows[slot] = 0

    def _load(self, connection: sqlite3.Connection, dimension: int) -> None:
        there = f"FROM vector WHERE space IN {self._spaces}"
        centre = self._centre(connection)
        self._packed = len(centre) > 0 and connection.execute(f"SELECT count(*) {there}").fetchone()[0] > SMALL
        if self._packed:
            self._mean = centre
            found = connection.execute(f"SELECT number, signs {there} AND signs != x''").fetchall()
            self._rows = np.frombuffer(b"".join([signs for _, signs in found]), np.uint8).reshape(len(found), -1).copy()
        else:
            found = connection.execute(f"SELECT number, data {there}").fetchall()
            rows = _as_rows([data for _, data in found], dimension)
            self._mean = _mean(rows[:: max(1, len(rows) // SAMPLE)])
            self._rows = self._centred(rows)
        self._count = self._loaded = len(found)
        self._numbers = np.array([number for number, _ in found], np.int64)
        self._slots = {number: slot for slot, (number, _) in enumerate(found)}
        if self._packed:
            for number, data in connection.execute(f"SELECT number, data {there} AND signs = x''"):
                self._put(number, data)

    def _centre(self, connection: sqlite3.Connection) -> Array:
        """Return the centre of the newest space that has one; empty if none has."""
        newest = f"SELECT centre FROM space WHERE number IN {self._spaces} AND centre != x'' ORDER BY number DESC"
        found = connection.execute(newest).fetchone()
        return np.frombuffer(found[0] if found else b"", np.float32)

    def _put(self, number: int, data: bytes) -> None:
        slot = self._slots.get(number)
        if not data:
            self.drop([number])
            return
        if slot is None:
            if self._count == len(self._numbers):
                room = max(64, self._count // 2)
                self._numbers = np.concatenate([self._numbers, np.zeros(room, np.int64)])
                self._rows = np.concatenate([self._rows, np.zeros((room, self._rows.shape[1]), self._rows.dtype)])
            slot = self._count
            self._count += 1
            self._numbers[slot] = number
            self._slots[number] = slot
        self._rows[slot] = self._held(_as_rows([data], len(self._mean)))[0]

    def _held(self, rows: Array) -> NDArray[Any]:
        """Return rows in the form that is kept in memory."""
        if self._packed:
            return np.packbits(rows > self._mean, axis=1)
        return self._centred(rows)

    def _centred(self, rows: Array) -> Array:
        """Return rows without the direction that all texts share, of length 1."""
        moved = rows - self._mean
        return moved / np.maximum(np.linalg.norm(moved, axis=1, keepdims=True), 1e-12)


def next_stamp(connection: sqlite3.Connection) -> int:
    """Return a number that is higher than those of all earlier changes."""
    connection.execute("UPDATE counter SET stamp = stamp + 1")
    return int(connection.execute("SELECT stamp FROM counter").fetchone()[0])


def _space_for(connection: sqlite3.Connection, model: str, pooling: str, dimension: int) -> tuple[int, Array]:
    """Return the space that new vectors belong to, and its centre; another dimension than before begins a new one."""
    newest = "SELECT number, dimension, centre FROM space WHERE model = ? AND pooling = ? ORDER BY number DESC LIMIT 1"
    found = connection.execute(newest, (model, pooling)).fetchone()
    if found and found[1] == dimension:
        return int(found[0]), np.frombuffer(found[2], np.float32)
    add = "INSERT INTO space (model, pooling, dimension) VALUES (?, ?, ?)"
    return int(connection.execute(add, (model, pooling, dimension)).lastrowid or 0), np.empty(0, np.float32)


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
    if hasattr(np, "bitwise_count"):  # NumPy 2
        if different.shape[1] % 8 == 0:
            return np.bitwise_count(different.view(np.uint64)).sum(axis=1, dtype=np.int64)
        return np.bitwise_count(different).sum(axis=1, dtype=np.int64)
    counts = np.array([bin(number).count("1") for number in range(256)], np.uint8)
    return counts[different].sum(axis=1, dtype=np.int64)
