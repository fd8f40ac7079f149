"""The suite of the Dispatcher port."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from itertools import pairwise

import anyio

from lmagent.core.errors import StoreError
from lmagent.core.ports import Clock, Dispatcher, DispatchJob, Postponed


class DispatcherConformance:
    """Subclass it and override `make`. The clock may be a fake one whose sleeps return by themselves."""

    def make(self) -> tuple[Dispatcher, Clock]:
        """Return an empty dispatcher and its clock."""
        raise AssertionError("override make")

    def _serve(
        self,
        dispatcher: Dispatcher,
        jobs: Sequence[DispatchJob],
        handler: Callable[[DispatchJob], Awaitable[None]],
        count: int,
    ) -> None:
        """Submit, serve until `count` jobs are done, then stop."""
        done = 0
        stop: list[Callable[[], None]] = []

        async def counted(job: DispatchJob) -> None:
            nonlocal done
            await handler(job)
            done += 1
            if done == count:
                stop[0]()

        async def main() -> None:
            for job in jobs:
                await dispatcher.submit(job)
            with anyio.fail_after(5):
                with anyio.CancelScope() as scope:
                    stop.append(scope.cancel)
                    await dispatcher.serve(counted)

        anyio.run(main)

    def test_jobs_of_a_lane_run_in_order_and_one_at_a_time(self) -> None:
        """However long each takes."""
        dispatcher, _ = self.make()
        log: list[str] = []

        async def handler(job: DispatchJob) -> None:
            log.append(f"begin {job.id}")
            await anyio.sleep(0.01)
            log.append(f"end {job.id}")

        self._serve(dispatcher, [DispatchJob(str(number), "lane") for number in range(3)], handler, 3)
        assert log[:5] == ["begin 0", "end 0", "begin 1", "end 1", "begin 2"]

    def test_lanes_run_at_the_same_time(self) -> None:
        """Each job here waits for the other one."""
        dispatcher, _ = self.make()
        met: dict[str, anyio.Event] = {}

        async def handler(job: DispatchJob) -> None:
            mine, other = job.lane, "b" if job.lane == "a" else "a"
            met.setdefault(mine, anyio.Event()).set()
            await met.setdefault(other, anyio.Event()).wait()

        self._serve(dispatcher, [DispatchJob("1", "a"), DispatchJob("2", "b")], handler, 2)

    def test_the_same_job_submitted_twice_is_one_job(self) -> None:
        """A retry of the submitter does no harm."""
        dispatcher, _ = self.make()
        ran: list[str] = []

        async def handler(job: DispatchJob) -> None:
            ran.append(job.id)

        self._serve(dispatcher, [DispatchJob("one", "x"), DispatchJob("one", "x"), DispatchJob("two", "x")], handler, 2)
        assert ran == ["one", "two"]

    def test_a_job_does_not_run_before_its_time(self) -> None:
        """Other lanes do not wait for it."""
        dispatcher, clock = self.make()
        due = clock.now() + 0.05
        times: dict[str, float] = {}

        async def handler(job: DispatchJob) -> None:
            times[job.id] = clock.now()

        self._serve(dispatcher, [DispatchJob("late", "a", run_at=due), DispatchJob("now", "b")], handler, 2)
        assert list(times) == ["now", "late"]
        assert times["late"] >= due

    def test_a_job_whose_time_has_not_come_does_not_hold_up_its_lane(self) -> None:
        """Only those that are due are in order."""
        dispatcher, clock = self.make()
        ran: list[str] = []

        async def handler(job: DispatchJob) -> None:
            ran.append(job.id)

        self._serve(
            dispatcher, [DispatchJob("late", "a", run_at=clock.now() + 0.05), DispatchJob("now", "a")], handler, 2
        )
        assert ran == ["now", "late"]

    def test_a_job_that_is_put_off_comes_again_and_its_lane_waits_for_it(self) -> None:
        """However often."""
        dispatcher, clock = self.make()
        ran: list[str] = []
        put_off: list[float] = []

        async def handler(job: DispatchJob) -> None:
            if job.id == "first" and len(put_off) < 7:
                put_off.append(clock.now())
                raise Postponed(0.01)
            ran.append(job.id)

        self._serve(dispatcher, [DispatchJob("first", "a"), DispatchJob("second", "a")], handler, 2)
        assert ran == ["first", "second"]
        assert all(later - sooner >= 0.009 for sooner, later in pairwise(put_off))

    def test_a_job_that_fails_is_tried_again_and_others_go_on(self) -> None:
        """It is given up after some attempts, and its lane continues."""
        dispatcher, _ = self.make()
        ran: list[str] = []

        async def handler(job: DispatchJob) -> None:
            ran.append(job.id)
            if job.id == "bad":
                raise StoreError("the disk is full")

        self._serve(
            dispatcher, [DispatchJob("bad", "a"), DispatchJob("after", "a"), DispatchJob("good", "b")], handler, 2
        )
        assert ran.count("bad") > 1
        assert [name for name in ran if name != "bad"] == ["good", "after"]

    def test_a_job_that_was_cut_off_is_delivered_again_to_who_serves_next(self) -> None:
        """Nothing is lost by stopping."""
        dispatcher, _ = self.make()
        ran: list[str] = []
        begun = anyio.Event()

        async def hanging(job: DispatchJob) -> None:
            ran.append(job.id)
            begun.set()
            await anyio.sleep_forever()

        async def main() -> None:
            await dispatcher.submit(DispatchJob("one", "a"))
            await dispatcher.submit(DispatchJob("two", "a"))
            with anyio.fail_after(5):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(dispatcher.serve, hanging)
                    await begun.wait()
                    tasks.cancel_scope.cancel()

        async def handler(job: DispatchJob) -> None:
            ran.append(job.id)

        anyio.run(main)
        self._serve(dispatcher, [], handler, 2)
        assert ran == ["one", "one", "two"]

    def test_a_cancelled_job_never_runs(self) -> None:
        """Cancelling a job that is unknown, or has begun, returns False."""
        dispatcher, _ = self.make()
        ran: list[str] = []
        answers: list[bool] = []

        async def handler(job: DispatchJob) -> None:
            ran.append(job.id)
            answers.append(await dispatcher.cancel(job.id))

        async def prepare() -> None:
            for name in ("one", "two"):
                await dispatcher.submit(DispatchJob(name, "lane"))
            answers.append(await dispatcher.cancel("one"))
            answers.append(await dispatcher.cancel("unknown"))

        anyio.run(prepare)
        self._serve(dispatcher, [], handler, 1)
        assert ran == ["two"]
        assert answers == [True, False, False]

    def test_a_job_submitted_by_a_job_runs(self) -> None:
        """Work may lead to more work."""
        dispatcher, _ = self.make()
        ran: list[str] = []

        async def handler(job: DispatchJob) -> None:
            ran.append(job.id)
            if job.id == "first":
                await dispatcher.submit(DispatchJob("second", job.lane))

        self._serve(dispatcher, [DispatchJob("first", "lane")], handler, 2)
        assert ran == ["first", "second"]
