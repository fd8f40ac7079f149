"""The embedded dispatcher: its port's suite, and what clocks and failing jobs do to it."""

from __future__ import annotations

import anyio

from lmagent.app.clock import SystemClock
from lmagent.core.errors import StoreError
from lmagent.core.ports import Clock, Dispatcher, DispatchJob
from lmagent.dispatch.embedded import ATTEMPTS, REST, EmbeddedDispatcher
from lmagent.testing.conformance import DispatcherConformance
from lmagent.testing.fakes import FakeClock


class TestEmbeddedDispatcher(DispatcherConformance):
    def make(self) -> tuple[Dispatcher, Clock]:
        clock = FakeClock(auto=True)
        return EmbeddedDispatcher(clock), clock


class TestEmbeddedDispatcherInRealTime(DispatcherConformance):
    def make(self) -> tuple[Dispatcher, Clock]:
        clock = SystemClock()
        return EmbeddedDispatcher(clock, backoff=0.001), clock


def test_a_job_that_failed_too_often_rests_and_gets_another_chance():
    clock = FakeClock(auto=True)
    rests: list[float] = []
    dispatcher = EmbeddedDispatcher(clock, given_up=lambda _job, _error: rests.append(clock.monotonic()))
    tries: list[float] = []

    async def main() -> None:
        await dispatcher.submit(DispatchJob("one", "lane"))
        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:

                async def handler(job: DispatchJob) -> None:
                    tries.append(clock.monotonic())
                    if len(tries) <= ATTEMPTS:
                        raise StoreError("the disk is full")
                    tasks.cancel_scope.cancel()

                tasks.start_soon(dispatcher.serve, handler)

    anyio.run(main)
    assert len(rests) == 1
    assert tries[-1] - rests[0] >= REST


def test_a_clock_that_is_put_back_or_ahead_loses_and_repeats_nothing():
    class JumpingClock(FakeClock):
        jump = 0.0

        def now(self) -> float:
            return super().now() + self.jump

    clock = JumpingClock(auto=True)
    dispatcher = EmbeddedDispatcher(clock)
    ran: list[str] = []
    jumps = iter([-60.0, 86400.0, 0.0, 7200.0, -60.0])

    async def main() -> None:
        for number in range(10):
            await dispatcher.submit(DispatchJob(str(number), f"lane {number % 3}", clock.now() + number))
        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:

                async def handler(job: DispatchJob) -> None:
                    ran.append(job.id)
                    clock.jump = next(jumps, 0.0)
                    if len(ran) == 10:
                        tasks.cancel_scope.cancel()

                tasks.start_soon(dispatcher.serve, handler)

    anyio.run(main)
    assert sorted(ran, key=int) == [str(number) for number in range(10)]
