"""Lines: the messages of a server's output, in bounded memory."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

LONGEST = 16 * 1024 * 1024
"""Bytes of a line. A longer one ends the server."""

WAITING = 32 * 1024 * 1024
"""Bytes of lines that wait to be handled."""

OVERHEAD = 100
"""Bytes that each waiting line counts in addition: a short one takes more memory than it has bytes."""

BRACKETS = 1_000_000
"""Brackets in a message: each may become an object of 64 bytes."""

NOISE = 32 * 1024 * 1024
"""Bytes of other output within `WINDOW`."""

WRITING = 1000
"""Bytes that each piece of other output counts in addition, for the time that it takes to log it."""

WINDOW = 10.0


class Flood(Exception):
    """A server sends more than can be handled."""


class Lines:
    """Splits output into lines. `feed` raises Flood, after which nothing is kept."""

    def __init__(self) -> None:
        self._begun = bytearray()
        self._lines: deque[bytes] = deque()
        self._waiting = 0

    def feed(self, piece: bytes) -> None:
        parts = piece.split(b"\n")
        self._begun += parts[0]
        for part in parts[1:]:
            self._add(bytes(self._begun))
            self._begun = bytearray(part)
        if len(self._begun) > LONGEST:
            self._begun = bytearray()
            raise Flood(f"it sent a line of more than {LONGEST >> 20} MB")

    def __len__(self) -> int:
        return len(self._lines)

    def take(self) -> bytes | None:
        """Return the next line, None if none is complete."""
        if not self._lines:
            return None
        line = self._lines.popleft()
        self._waiting -= len(line) + OVERHEAD
        return line

    def _add(self, line: bytes) -> None:
        if not line.strip():
            return
        self._lines.append(line)
        self._waiting += len(line) + OVERHEAD
        if self._waiting > WAITING:
            self._lines.clear()
            self._waiting = 0
            raise Flood(f"it sent more than {WAITING >> 20} MB faster than that can be handled")


class Noise:
    """Counts output that is no message. `count` raises Flood."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since = clock()
        self._bytes = 0

    def count(self, length: int) -> None:
        if (now := self._clock()) > self._since + WINDOW:
            self._since, self._bytes = now, 0
        self._bytes += length + WRITING
        if self._bytes > NOISE:
            raise Flood(f"it wrote more than {NOISE >> 20} MB to its log within {WINDOW:.0f} seconds")


class AnswerSize:
    """Counts an answer over HTTP; in a stream, each event begins anew. `count` raises Flood."""

    def __init__(self, *, has_events: bool) -> None:
        self.has_events = has_events
        self._bytes = 0
        self._brackets = 0

    def count(self, piece: bytes) -> None:
        if self.has_events and (end := max(piece.rfind(b"\n\n"), piece.rfind(b"\n\r\n"))) >= 0:
            piece, self._bytes, self._brackets = piece[end:], 0, 0
        self._bytes += len(piece)
        self._brackets += _brackets(piece)
        if self._bytes > LONGEST:
            raise Flood(f"it sent an answer of more than {LONGEST >> 20} MB")
        if self._brackets > BRACKETS:
            raise Flood(f"it sent an answer with more than {BRACKETS:,} brackets")


def has_many_brackets(piece: bytes) -> bool:
    return _brackets(piece) > BRACKETS


def _brackets(piece: bytes) -> int:
    return piece.count(b"{") + piece.count(b"[")
