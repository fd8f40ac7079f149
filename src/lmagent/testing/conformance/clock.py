"""The suite of the Clock port."""

from __future__ import annotations

import anyio

from lmagent.core.ports import Clock


class ClockConformance:
    """Subclass it and override `make`. A fake clock must be one whose sleeps return by themselves."""

    def make(self) -> Clock:
        """Return a clock."""
        raise AssertionError("override make")

    def test_time_is_in_seconds_since_1970(self) -> None:
        """Between 2001 and 2100."""
        assert 1e9 < self.make().now() < 4.2e9

    def test_monotonic_time_never_goes_back(self) -> None:
        """Also not across sleeps."""
        clock = self.make()

        async def main() -> list[float]:
            seen = [clock.monotonic()]
            for _ in range(5):
                await clock.sleep(0.001)
                seen.append(clock.monotonic())
            return seen

        seen = anyio.run(main)
        assert seen == sorted(seen)

    def test_a_sleep_moves_both_times_on_by_its_length(self) -> None:
        """Wall time may be off by clock adjustments, so it is only checked roughly."""
        clock = self.make()

        async def main() -> tuple[float, float]:
            wall, steady = clock.now(), clock.monotonic()
            await clock.sleep(0.02)
            return clock.now() - wall, clock.monotonic() - steady

        wall, steady = anyio.run(main)
        assert steady >= 0.0199
        assert wall >= 0.015

    def test_a_sleep_of_zero_returns(self) -> None:
        """Other tasks get their turn meanwhile."""
        clock = self.make()

        async def main() -> None:
            with anyio.fail_after(2):
                await clock.sleep(0)

        anyio.run(main)

    def test_a_sleep_can_be_cancelled(self) -> None:
        """An interrupt does not wait for a pause to end."""
        clock = self.make()

        async def main() -> bool:
            with anyio.CancelScope() as scope:
                scope.cancel()
                await clock.sleep(60)
            return scope.cancelled_caught

        assert anyio.run(main)
