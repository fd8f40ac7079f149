"""A cell's output, in bounded memory."""

from __future__ import annotations

from lmagent.tools.collect import clean

HALF = 512 * 1024
"""Bytes that are kept of the beginning of a cell's output, and as many of its end."""


class Output:
    """The beginning and the end of a stream of bytes of any length."""

    def __init__(self) -> None:
        self.total = 0
        self._head = bytearray()
        self._tail = bytearray()

    def add(self, piece: bytes) -> None:
        self.total += len(piece)
        room = HALF - len(self._head)
        self._head += piece[:room] if room > 0 else b""
        self._tail += piece[max(room, 0) :][-HALF:]
        if len(self._tail) > 2 * HALF:
            del self._tail[:-HALF]

    def text(self) -> str:
        """Return the kept output, without terminal escapes and overdrawn lines."""
        tail = bytes(self._tail[-HALF:])
        left_out = self.total - len(self._head) - len(tail)
        if not left_out:
            return clean(bytes(self._head) + tail)
        return f"{clean(bytes(self._head))}\n[… {left_out} bytes left out …]\n{clean(tail)}"
