"""The suite of the Clock port."""

from __future__ import annotations

import anyio

from lmagent.core.ports import Clock
from lmagent.testing.conformance.asynchronous import Asynchronous


class ClockConformance(Asynchronous):
    """Subclass it and override `make`. A fake clock must be one whose sleeps return by themselves."""

    def make(self) -> Clock:
        """Return a clock."""
        raise AssertionError("override make")

    def test_time_is_in_seconds_since_1970(self) -> None:
        assert 1e9 < self.make().now() < 4.2e9  # between 2001 and 2100

    async def test_monotonic_time_never_goes_back(self) -> None:
        clock = self.make()
        seen = [clock.monotonic()]
        for _ in range(5):
            await clock.sleep(0.001)
            seen.append(clock.monotonic())
        assert seen == sorted(seen)

    async def test_a_sleep_moves_both_times_on_by_its_length(self) -> None:
        clock = self.make()
        wall, steady = clock.now(), clock.monotonic()
        await clock.sleep(0.02)
        assert clock.monotonic() - steady >= 0.0199
        assert clock.now() - wall >= 0.015  # the clock of the wall may be adjusted meanwhile

    async def test_a_sleep_of_zero_returns(self) -> None:
        with anyio.fail_after(2):
            await self.make().sleep(0)

    async def test_a_sleep_can_be_cancelled(self) -> None:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await self.make().sleep(60)
        assert scope.cancelled_caught
