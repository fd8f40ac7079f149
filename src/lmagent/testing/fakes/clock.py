"""FakeClock: time that moves only when a test says so."""

from __future__ import annotations

import heapq
from itertools import count

import anyio
import anyio.lowlevel

_ROUNDS = 5  # rounds of the event loop that a woken sleeper gets before the next one wakes


class FakeClock:
    """A clock that tests move by hand.

    Args:
        start: Unix time at which it begins.
        auto: a sleep returns at once and moves the time by itself; no call of `advance` is needed.

    Attributes:
        slept: seconds of every sleep that was asked for, in order.
    """

    def __init__(self, start: float = 1_700_000_000.0, *, auto: bool = False) -> None:
        self.slept: list[float] = []
        self._start = start
        self._passed = 0.0
        self._auto = auto
        self._order = count()
        self._sleepers: list[tuple[float, int, anyio.Event]] = []

    def now(self) -> float:
        """Unix time in seconds."""
        return self._start + self._passed

    def monotonic(self) -> float:
        """Seconds that never go back."""
        return self._passed

    @property
    def sleepers(self) -> int:
        """Count the sleeping tasks."""
        return len(self._sleepers)

    async def sleep(self, seconds: float) -> None:
        """Wait until `advance` has moved the time on by `seconds`."""
        self.slept.append(seconds)
        if self._auto:
            self._passed += max(0.0, seconds)
        if self._auto or seconds <= 0:
            await anyio.lowlevel.checkpoint()
            return
        entry = (self._passed + seconds, next(self._order), anyio.Event())
        heapq.heappush(self._sleepers, entry)
        try:
            await entry[2].wait()
        except BaseException:
            if entry in self._sleepers:  # cancelled before its time
                self._sleepers.remove(entry)
                heapq.heapify(self._sleepers)
            raise

    async def advance(self, seconds: float) -> None:
        """Move the time on. Sleepers wake one after the other in the order of their times; each sees its own time

        and runs before the next one wakes, also one that sleeps again within these seconds.
        """
        end = self._passed + seconds
        await self._let_run()
        while self._sleepers and self._sleepers[0][0] <= end:
            due, _, event = heapq.heappop(self._sleepers)
            self._passed = max(self._passed, due)
            event.set()
            await self._let_run()
        self._passed = end
        await self._let_run()

    async def _let_run(self) -> None:
        for _ in range(_ROUNDS):
            await anyio.lowlevel.checkpoint()
