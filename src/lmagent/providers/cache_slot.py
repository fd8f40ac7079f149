"""Cache slots: the order in which conversations use a prompt cache that they share.

A slot keeps one prompt. If two conversations take steps in it alternately, the server reads both prompts again at each
step; if the second waits for the end of the first one's turn, it reads one prompt. So a conversation keeps the slot
for its turn. It lets another one in while it does not need the model (a build, an approval), and after its share of
time.
"""

from __future__ import annotations

from collections.abc import Callable

import anyio
from msgspec import Struct

from lmagent.core.ports import Clock
from lmagent.providers.dialects.base import ServerFacts

IDLE = 10.0
"""Seconds without a request after which a conversation in the middle of its turn lets another one in."""

SHARE = 300.0
"""Seconds after which it does so between two steps: the work done meanwhile outweighs reading two prompts again."""

_LOOK = 0.05
"""Seconds between two checks whether the slot is free."""

_SINGLE = ("lmstudio", "ollama", "generic")
"""Dialects whose servers keep one prompt, or a few, if they do not report how many."""


class CachedConversation(Struct, eq=False):
    """One conversation, from the view of the prompt caches.

    Attributes:
        number: 0 for the main conversation.
        in_turn: whether more requests of its turn will come.
        aside: it asks on behalf of a conversation that is in its turn, so it never waits.
    """

    number: int
    in_turn: Callable[[], bool] = lambda: False
    aside: bool = False


class CacheSlot:
    """One prompt cache, and the conversations that share it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._owner: CachedConversation | None = None
        self._running = 0
        self._since = 0.0
        self._left = 0.0
        self._queue: list[CachedConversation] = []
        self._over = anyio.Event()

    def is_free(self, asker: CachedConversation) -> bool:
        if asker.aside:
            return True
        owner = self._owner
        if owner is None or owner is asker:
            return not self._queue or self._queue[0] is asker or not self._is_due()
        if self._running or (self._queue and self._queue[0] is not asker):
            return False
        return not owner.in_turn() or self._is_due()

    def _is_due(self) -> bool:
        now = self._clock.monotonic()
        return now - self._left >= IDLE or now - self._since >= SHARE

    async def take(self, asker: CachedConversation) -> None:
        """Wait until the slot is free, and use it. `leave` must follow."""
        if not self.is_free(asker):
            self._queue.append(asker)
            try:
                while not self.is_free(asker):
                    with anyio.move_on_after(_LOOK):  # the end of a turn and the passing of time set no event
                        await self._over.wait()
            finally:
                self._queue.remove(asker)
        if self._owner is not asker and not asker.aside:
            self._owner, self._since = asker, self._clock.monotonic()
        self._running += 1

    def leave(self) -> None:
        self._running -= 1
        self._left = self._clock.monotonic()
        over, self._over = self._over, anyio.Event()
        over.set()


def caches(facts: ServerFacts, *, near: bool, parallel: int | None = None) -> int | None:
    """Return how many conversations the server keeps at once; None if they need not share.

    Args:
        near: it is on this machine or a private network.
        parallel: the user's setting `llm_parallel`, for a server that does not report its slots.
    """
    if not facts.reached or not near:
        return None
    return facts.slots or parallel or (1 if facts.dialect in _SINGLE else None)


def slot_of(facts: ServerFacts, conversation: int) -> int | None:
    """Return the slot to bind a conversation's requests to; None if the server has only one, or binds no requests."""
    return slot_number(conversation, facts.slots) if facts.id_slot and facts.slots and facts.slots > 1 else None


def slot_number(conversation: int, kept: int) -> int:
    """Return the slot of a conversation among `kept` slots: the first is for the main conversation (0) alone."""
    return 0 if kept == 1 or conversation <= 0 else 1 + (conversation - 1) % (kept - 1)
