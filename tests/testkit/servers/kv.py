"""KV: the prompt caches of llama.cpp's slots, byte by byte, without a model.

A slot keeps the prompt that it read last. A request is served by the slot `id_slot` (wrapped around), else by the free
slot that shares with it the longest beginning, if that is more than `SIMILARITY` of the request, else by the free slot
that was idle for longest (`server_context::get_available_slot`). The part that slot and request share is not read
again; the last token always is.

Simpler than the real server: the model's output is not kept in the slot, so a reply is read once when it comes back
as history; and tokens are bytes / 4, so a shared beginning may end in the middle of a token.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lmagent.testing.prefix import common_prefix


@dataclass(frozen=True, slots=True)
class Admission:
    """How one request was served."""

    slot: int
    why: Literal["id", "prefix", "lru"]  # how it was chosen
    tokens: int  # tokens of the prompt
    cached: int  # tokens that were not read again
    read: int  # tokens that were
    evicted: int  # tokens of another prompt that were lost to it


@dataclass(slots=True)
class Slot:
    """One slot."""

    held: bytes = b""  # the prompt that it read last
    busy: bool = False  # it is at work
    used: int = 0  # number of the request that it served last; 0 for none


SIMILARITY = 0.1  # share of a request that a slot must hold to be preferred: llama.cpp's default
BYTES_PER_TOKEN = 4


class SlotCache:
    """The slots of a server. `log` says how each request was served."""

    def __init__(self, slots: int) -> None:
        self.slots = [Slot() for _ in range(slots)]
        self.log: list[Admission] = []

    @property
    def read(self) -> int:
        """Count the tokens read, over all requests."""
        return sum(row.read for row in self.log)

    @property
    def cached(self) -> int:
        """Count the tokens that were not read again, over all requests."""
        return sum(row.cached for row in self.log)

    @property
    def evictions(self) -> int:
        """Count the prompts that were lost to another one."""
        return sum(row.evicted > 0 for row in self.log)

    @property
    def evicted(self) -> int:
        """Count the tokens of prompts that were lost to others."""
        return sum(row.evicted for row in self.log)

    def free(self, wanted: int = -1) -> bool:
        """Whether a request can be served now."""
        if wanted >= 0:
            return not self.slots[wanted % len(self.slots)].busy
        return any(not slot.busy for slot in self.slots)

    def admit(self, prompt: bytes, wanted: int = -1, *, cache: bool = True) -> Admission:
        """Serve a prompt; its slot is busy until `release`.

        Args:
            wanted: `id_slot`; below 0 the server chooses.
            cache: `cache_prompt`; without it everything is read.
        """
        number, why = self._choose(prompt, wanted)
        slot = self.slots[number]
        shared = common_prefix(slot.held, prompt)
        lost = len(slot.held) > 2 * shared
        tokens = len(prompt) // BYTES_PER_TOKEN
        cached = min(shared // BYTES_PER_TOKEN, max(0, tokens - 1)) if cache else 0
        evicted = (len(slot.held) - shared) // BYTES_PER_TOKEN if lost else 0
        row = Admission(number, why, tokens, cached, tokens - cached, evicted)
        self.log.append(row)
        slot.held, slot.busy, slot.used = prompt, True, len(self.log)
        return row

    def release(self, number: int) -> None:
        """The request of a slot is done."""
        self.slots[number].busy = False

    def _choose(self, prompt: bytes, wanted: int) -> tuple[int, Literal["id", "prefix", "lru"]]:
        if wanted >= 0:
            return wanted % len(self.slots), "id"
        idle = [number for number, slot in enumerate(self.slots) if not slot.busy]
        shares = {number: common_prefix(self.slots[number].held, prompt) / max(1, len(prompt)) for number in idle}
        best = max(idle, key=lambda number: shares[number])
        if shares[best] > SIMILARITY:
            return best, "prefix"
        return min(idle, key=lambda number: self.slots[number].used), "lru"
