"""Endless: notices a reply that does not end, by its length or because it repeats itself."""

from __future__ import annotations

LONGEST_CYCLE = 2000
"""Characters of the longest repeated piece."""

REPEATED = 12_000
"""Characters at the end of a reply that are one repeated piece: no more content is expected from there on."""


class EndlessMeter:
    """Watches one reply, which counts as endless after `longest` characters in any case."""

    def __init__(self, longest: int) -> None:
        self.endless = False
        self.size = 0
        self._longest = longest
        self._tail = ""
        self._pieces: list[str] = []
        self._looked = 0

    def add(self, piece: str) -> None:
        self.size += len(piece)
        self._pieces.append(piece)
        if self.size - self._looked >= LONGEST_CYCLE:
            self._tail = "".join((self._tail, *self._pieces))[-REPEATED:]
            self._pieces.clear()
            self._looked = self.size
            self.endless = self.endless or repeats(self._tail)
        self.endless = self.endless or self.size > self._longest


def repeats(tail: str) -> bool:
    """Return whether a text of `REPEATED` characters is one piece of at most `LONGEST_CYCLE`, repeated."""
    if len(tail) < REPEATED:
        return False
    before = tail.rfind(tail[-LONGEST_CYCLE:], -2 * LONGEST_CYCLE, -1)
    period = len(tail) - LONGEST_CYCLE - before
    return before >= 0 and tail[period:] == tail[:-period]
