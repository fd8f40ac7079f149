"""Floor: whose turn it is where several conversations share one prompt cache.

A slot keeps one prompt. Two conversations that take steps in it by turns read everything again at every step; one
that waits until the other's turn is over costs one reading. So a conversation keeps the floor while its turn goes on,
and lets another one in when it needs the model for long no more (a build, an approval) or has had its share of time.
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
"""Seconds after which it does so between two steps: reading two prompts again costs less than what was done since."""

_LOOK = 0.05
"""Seconds between two looks whether the floor is free."""

_SINGLE = ("lmstudio", "ollama", "generic")
"""Dialects whose servers keep one prompt, or a few, when they do not say how many."""


class Conversation(Struct, eq=False):
    """One conversation, as far as the floor is concerned.

    Attributes:
        number: its lane.
        in_turn: whether more requests of its turn are to come.
        aside: it asks on behalf of one that is in its turn, so it waits for nobody.
        tokens: size of its last prompt.
        saved: its prompt's state lies in a file of the server.
    """

    number: int
    in_turn: Callable[[], bool] = lambda: False
    aside: bool = False
    tokens: int = 0
    saved: bool = False


class Floor:
    """One prompt cache, and those who share it.

    Args:
        clock: time.

    Attributes:
        resident: whose prompt the cache holds.
    """

    def __init__(self, clock: Clock) -> None:
        self.resident: Conversation | None = None
        self._clock = clock
        self._owner: Conversation | None = None
        self._running = 0
        self._since = 0.0
        self._left = 0.0
        self._queue: list[Conversation] = []
        self._over = anyio.Event()

    def is_free(self, asker: Conversation) -> bool:
        """Whether a request of that conversation may be sent now."""
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

    async def take(self, asker: Conversation) -> None:
        """Wait until the floor is free, and have it. `leave` must follow."""
        if not self.is_free(asker):
            self._queue.append(asker)
            try:
                while not self.is_free(asker):
                    with anyio.move_on_after(_LOOK):  # a turn ends, and time passes, without a word
                        await self._over.wait()
            finally:
                self._queue.remove(asker)
        if self._owner is not asker and not asker.aside:
            self._owner, self._since = asker, self._clock.monotonic()
        self._running += 1

    def leave(self) -> None:
        """The request is over."""
        self._running -= 1
        self._left = self._clock.monotonic()
        over, self._over = self._over, anyio.Event()
        over.set()


def caches(facts: ServerFacts, *, near: bool, parallel: int | None = None) -> int | None:
    """How many conversations the server keeps at once; None for as many as there are.

    Args:
        facts: what is known of it.
        near: it is on this machine or a private network.
        parallel: the user's setting `llm_parallel`, for a server that does not report its slots.
    """
    if not facts.reached or not near:
        return None
    return facts.slots or parallel or (1 if facts.dialect in _SINGLE else None)


def place(lane: int, kept: int) -> int:
    """Which of the conversations that a server keeps a lane is: the first is the main one's alone.

    Args:
        lane: number of the lane; 0 is the main one.
        kept: how many conversations the server keeps.
    """
    return 0 if kept == 1 or lane <= 0 else 1 + (lane - 1) % (kept - 1)
