"""The suite of the Dispatcher port."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from itertools import pairwise

import anyio

from lmagent.core.errors import StoreError
from lmagent.core.ports import Clock, Dispatcher, DispatchJob, Postponed
from lmagent.testing.conformance.asynchronous import Asynchronous


class DispatcherConformance(Asynchronous):
    """Subclass it and override `make`. The clock may be a fake one whose sleeps return by themselves."""

    def make(self) -> tuple[Dispatcher, Clock]:
        """Return an empty dispatcher and its clock."""
        raise AssertionError("override make")

    async def _serve(
        self,
        dispatcher: Dispatcher,
        jobs: Sequence[DispatchJob],
        handler: Callable[[DispatchJob], Awaitable[None]],
        count: int,
    ) -> None:
        """Submit, serve until `count` jobs are done, then stop."""
        done = 0
        scope = anyio.CancelScope()

        async def counted(job: DispatchJob) -> None:
            nonlocal done
            await handler(job)
            done += 1
            if done == count:
                scope.cancel()

        for job in jobs:
            await dispatcher.submit(job)
        with anyio.fail_after(5), scope:
            await dispatcher.serve(counted)

    async def test_jobs_of_a_lane_run_in_order_and_one_at_a_time(self) -> None:
        dispatcher, _ = self.make()
        log: list[str] = []

        async def handler(job: DispatchJob) -> None:
            log.append(f"begin {job.id}")
            await anyio.sleep(0.01)
            log.append(f"end {job.id}")

        await self._serve(dispatcher, [DispatchJob(str(number), "lane") for number in range(3)], handler, 3)
        assert log[:5] == ["begin 0", "end 0", "begin 1", "end 1", "begin 2"]

    async def test_lanes_run_at_the_same_time(self) -> None:
        dispatcher, _ = self.make()
        met: dict[str, anyio.Event] = {}

        async def handler(job: DispatchJob) -> None:
            mine, other = job.lane, "b" if job.lane == "a" else "a"
            met.setdefault(mine, anyio.Event()).set()
            await met.setdefault(other, anyio.Event()).wait()

        await self._serve(dispatcher, [DispatchJob("1", "a"), DispatchJob("2", "b")], handler, 2)

    async def test_the_same_job_submitted_twice_is_one_job(self) -> None:
        dispatcher, _ = self.make()
        ran: list[str] = []

        async def handler(job: DispatchJob) -> None:
            ran.append(job.id)

        jobs = [DispatchJob(name, "x") for name in ("one", "one", "two")]
        await self._serve(dispatcher, jobs, handler, 2)
        assert ran == ["one", "two"]

    async def test_a_job_does_not_run_before_its_time(self) -> None:
        dispatcher, clock = self.make()
        due = clock.now() + 0.05
        times: dict[str, float] = {}

        async def handler(job: DispatchJob) -> None:
            times[job.id] = clock.now()

        await self._serve(dispatcher, [DispatchJob("late", "a", run_at=due), DispatchJob("now", "b")], handler, 2)
        assert list(times) == ["now", "late"]
        assert times["late"] >= due

    async def test_a_job_whose_time_has_not_come_does_not_hold_up_its_lane(self) -> None:
        dispatcher, clock = self.make()
        ran: list[str] = []

        async def handler(job: DispatchJob) -> None:
            ran.append(job.id)

        await self._serve(
            dispatcher, [DispatchJob("late", "a", run_at=clock.now() + 0.05), DispatchJob("now", "a")], handler, 2
        )
        assert ran == ["now", "late"]

    async def test_a_job_that_is_put_off_comes_again_and_its_lane_waits_for_it(self) -> None:
        dispatcher, clock = self.make()
        ran: list[str] = []
        put_off: list[float] = []

        async def handler(job: DispatchJob) -> None:
            if job.id == "first" and len(put_off) < 7:
                put_off.append(clock.now())
                raise Postponed(0.01)
            ran.append(job.id)

        await self._serve(dispatcher, [DispatchJob("first", "a"), DispatchJob("second", "a")], handler, 2)
        assert ran == ["first", "second"]
        assert all(later - sooner >= 0.009 for sooner, later in pairwise(put_off))

    async def test_a_job_that_fails_is_tried_again_and_others_go_on(self) -> None:
        dispatcher, _ = self.make()
        ran: list[str] = []

        async def handler(job: DispatchJob) -> None:
            ran.append(job.id)
            if job.id == "bad":
                raise StoreError("the disk is full")

        await self._serve(
            dispatcher, [DispatchJob("bad", "a"), DispatchJob("after", "a"), DispatchJob("good", "b")], handler, 2
        )
        assert ran.count("bad") > 1
        assert [name for name in ran if name != "bad"] == ["good", "after"]

    async def test_a_job_that_was_cut_off_is_delivered_again_to_who_serves_next(self) -> None:
        dispatcher, _ = self.make()
        ran: list[str] = []
        begun = anyio.Event()

        async def hanging(job: DispatchJob) -> None:
            ran.append(job.id)
            begun.set()
            await anyio.sleep_forever()

        await dispatcher.submit(DispatchJob("one", "a"))
        await dispatcher.submit(DispatchJob("two", "a"))
        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(dispatcher.serve, hanging)
                await begun.wait()
                tasks.cancel_scope.cancel()

        async def handler(job: DispatchJob) -> None:
            ran.append(job.id)

        await self._serve(dispatcher, [], handler, 2)
        assert ran == ["one", "one", "two"]

    async def test_a_cancelled_job_never_runs(self) -> None:
        dispatcher, _ = self.make()
        ran: list[str] = []
        answers: list[bool] = []

        async def handler(job: DispatchJob) -> None:
            ran.append(job.id)
            answers.append(await dispatcher.cancel(job.id))

        for name in ("one", "two"):
            await dispatcher.submit(DispatchJob(name, "lane"))
        answers += [await dispatcher.cancel("one"), await dispatcher.cancel("unknown")]
        await self._serve(dispatcher, [], handler, 1)
        assert ran == ["two"]
        assert answers == [True, False, False]

    async def test_a_job_submitted_by_a_job_runs(self) -> None:
        dispatcher, _ = self.make()
        ran: list[str] = []

        async def handler(job: DispatchJob) -> None:
            ran.append(job.id)
            if job.id == "first":
                await dispatcher.submit(DispatchJob("second", job.lane))

        await self._serve(dispatcher, [DispatchJob("first", "lane")], handler, 2)
        assert ran == ["first", "second"]
