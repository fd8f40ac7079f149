"""Prefix: the share of a prompt that a model server could take from its cache.

A server keeps the last prompt and reads again everything after the first byte that differs. The meter does that sum
over the canonical bytes of each request: the tool block, then one line a message, each as the JSON that was sent (key
order included, white space not). Tokens are bytes / 4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec


@dataclass(frozen=True, slots=True)
class PrefixRow:
    """One request."""

    # share of the previous prompt that begins this one; 1.0 is append-only. The first request of a conversation has 1.0
    ratio: float
    size: int  # bytes of this prompt
    common: int  # bytes shared with the previous one
    prefilled: int  # tokens that had to be read: everything after the common prefix
    slot: int  # number of the slot that served it, from 0


def canonical(body: Mapping[str, Any]) -> bytes:
    """Return the prompt of a chat request in bytes: tools, then messages. An earlier prompt is a prefix of a later one

    exactly if nothing before its end has changed.
    """
    encode = msgspec.json.encode
    messages: list[Any] = body.get("messages") or []
    lines = [encode(body.get("tools") or []), *(encode(message) for message in messages)]
    return b"\n".join(lines) + b"\n"


def common_prefix(one: bytes, other: bytes) -> int:
    """Return how many bytes two texts share at their beginning."""
    low, high = 0, min(len(one), len(other))
    if one[:high] == other[:high]:
        return high
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


class PrefixMeter:
    """Keeps the account over all requests of a server.

    `slots`: prompts that the server keeps at a time. With one, every request is compared with the one before it. With
    more, a request goes to the slot with the longest common prefix if that is at least half of the slot's content, else
    to an empty slot, else to the one that was used longest ago (llama.cpp's way).
    """

    def __init__(self, slots: int = 1) -> None:
        self.rows: list[PrefixRow] = []
        self._slots: list[bytes] = [b""] * slots
        self._used: list[int] = [0] * slots
        self._seen: set[bytes] = set()

    @property
    def ratio(self) -> float:
        """The worst ratio of all requests."""
        return min((row.ratio for row in self.rows), default=1.0)

    @property
    def breaks(self) -> list[int]:
        """Numbers of the requests (from 1) that were no pure continuation."""
        return [number for number, row in enumerate(self.rows, 1) if row.ratio < 1.0]

    @property
    def prefilled(self) -> int:
        """Tokens that the server had to read, over all requests."""
        return sum(row.prefilled for row in self.rows)

    @property
    def fresh(self) -> int:
        """Tokens that no server could have had before: every distinct message and tool block, once."""
        return sum(len(line) + 1 for line in self._seen) // 4

    def add(self, prompt: bytes) -> PrefixRow:
        """Account for one prompt, as `canonical` gives it."""
        shared = [common_prefix(held, prompt) for held in self._slots]
        slot = self._choose(shared)
        held, common = self._slots[slot], shared[slot]
        ratio = common / len(held) if held else 1.0
        row = PrefixRow(ratio, len(prompt), common, (len(prompt) - common) // 4, slot)
        self.rows.append(row)
        self._slots[slot] = prompt
        self._used[slot] = len(self.rows)
        self._seen.update(prompt[common:].splitlines())
        return row

    def _choose(self, shared: list[int]) -> int:
        places = range(len(shared))
        best = max(places, key=lambda place: shared[place])
        if len(shared) == 1 or (self._slots[best] and shared[best] * 2 >= len(self._slots[best])):
            return best
        return min(places, key=lambda place: self._used[place])
