"""FakeDispatcher: a queue in memory. Lanes are serial and run in parallel."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio

from lmagent.core.ports import Clock, Job


class FakeDispatcher:
    """Delivers jobs within this process; an error of the handler ends `serve` with it.

    Args:
        clock: says when a job with a time is due.

    Attributes:
        done: ids of the jobs that were carried out, in the order in which they ended.
    """

    def __init__(self, clock: Clock) -> None:
        self.done: list[str] = []
        self._clock = clock
        self._waiting: list[Job] = []
        self._known: set[str] = set()
        self._lanes: set[str] = set()
        self._news: anyio.Event | None = None

    async def submit(self, job: Job) -> None:
        """See `lmagent.core.ports.Dispatcher`."""
        if job.id not in self._known:
            self._known.add(job.id)
            self._waiting.append(job)
            self._wake()

    async def cancel(self, job: str) -> bool:
        """See `lmagent.core.ports.Dispatcher`."""
        for waiting in self._waiting:
            if waiting.id == job:
                self._waiting.remove(waiting)
                self._wake()
                return True
        return False

    async def serve(self, handler: Callable[[Job], Awaitable[None]]) -> None:
        """See `lmagent.core.ports.Dispatcher`."""
        async with anyio.create_task_group() as tasks:
            while True:
                self._news = anyio.Event()
                for job in self._startable():
                    self._waiting.remove(job)
                    self._lanes.add(job.lane)
                    tasks.start_soon(self._run, job, handler)
                await self._until_news_or_due(self._news)

    def _startable(self) -> list[Job]:
        """The first waiting job of each lane that is free, if its time has come."""
        now = self._clock.now()
        return [job for job in self._heads() if job.run_at <= now]

    def _heads(self) -> list[Job]:
        heads = dict[str, Job]()
        for job in self._waiting:
            heads.setdefault(job.lane, job)
        return [job for lane, job in heads.items() if lane not in self._lanes]

    async def _until_news_or_due(self, news: anyio.Event) -> None:
        times = [job.run_at for job in self._heads()]
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

    async def _run(self, job: Job, handler: Callable[[Job], Awaitable[None]]) -> None:
        await handler(job)
        self.done.append(job.id)
        self._lanes.discard(job.lane)
        self._wake()

    def _wake(self) -> None:
        if self._news is not None:
            self._news.set()
