"""FakeDispatcher: a queue in memory. Lanes are serial and run in parallel."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio

from lmagent.core.errors import LmagentError
from lmagent.core.ports import Clock, DispatchJob, Postponed

ATTEMPTS, PAUSE = 5, 1.0
"""How often a failing job is delivered, and the seconds between."""


class FakeDispatcher:
    """Delivers jobs within this process.

    Args:
        clock: says when a job with a time is due.

    Attributes:
        done: ids of the jobs that were carried out, in the order in which they ended.
        failed: ids of the jobs that were given up.
    """

    def __init__(self, clock: Clock) -> None:
        self.done: list[str] = []
        self.failed: list[str] = []
        self._clock = clock
        self._waiting: list[DispatchJob] = []
        self._known: set[str] = set()
        self._attempts: dict[str, int] = {}
        self._not_before: dict[str, float] = {}
        self._lanes: set[str] = set()
        self._news: anyio.Event | None = None

    async def submit(self, job: DispatchJob) -> None:
        if job.id not in self._known:
            self._known.add(job.id)
            self._waiting.append(job)
            self._wake()

    async def cancel(self, job: str) -> bool:
        for waiting in self._waiting:
            if waiting.id == job:
                self._waiting.remove(waiting)
                self._wake()
                return True
        return False

    async def serve(self, handler: Callable[[DispatchJob], Awaitable[None]]) -> None:
        async with anyio.create_task_group() as tasks:
            while True:
                self._news = anyio.Event()
                for job in self._startable():
                    self._waiting.remove(job)
                    self._lanes.add(job.lane)
                    tasks.start_soon(self._run, job, handler)
                await self._until_news_or_due(self._news)

    def _startable(self) -> list[DispatchJob]:
        """Return the first due job of each free lane, unless it was postponed."""
        now = self._clock.now()
        heads = dict[str, DispatchJob]()
        for job in self._waiting:
            if job.run_at <= now:
                heads.setdefault(job.lane, job)
        free = [job for lane, job in heads.items() if lane not in self._lanes]
        return [job for job in free if self._not_before.get(job.id, 0.0) <= now]

    async def _until_news_or_due(self, news: anyio.Event) -> None:
        now = self._clock.now()
        due = [max(job.run_at, self._not_before.get(job.id, 0.0)) for job in self._waiting]
        times = [time for time in due if time > now]  # the others wait for their lane
        if not times:
            await news.wait()
            return
        async with anyio.create_task_group() as tasks:

            async def alarm() -> None:
                await self._clock.sleep(max(0.0, min(times) - self._clock.now()))
                news.set()

            tasks.start_soon(alarm)
            await news.wait()
            tasks.cancel_scope.cancel()

    async def _run(self, job: DispatchJob, handler: Callable[[DispatchJob], Awaitable[None]]) -> None:
        try:
            await handler(job)
            self.done.append(job.id)
        except Postponed as later:
            self._again(job, later.seconds)
        except LmagentError:
            attempts = self._attempts[job.id] = self._attempts.get(job.id, 0) + 1
            if attempts < ATTEMPTS:
                self._again(job, PAUSE)
            else:
                self.failed.append(job.id)
        except BaseException:
            self._again(job, 0.0)
            raise
        finally:
            self._lanes.discard(job.lane)
            self._wake()

    def _again(self, job: DispatchJob, seconds: float) -> None:
        self._waiting.insert(0, job)
        self._not_before[job.id] = self._clock.now() + seconds

    def _wake(self) -> None:
        if self._news is not None:
            self._news.set()
