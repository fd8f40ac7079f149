"""The embedded dispatcher: a queue of this process.

Each process that serves has a queue of its own. The readers of the logs and the files submit unfinished jobs to it,
also those of a process that has died; the locks of sessions and of cron jobs keep two processes apart.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable

import anyio
from msgspec import Struct

from lmagent.core.errors import LmagentError
from lmagent.core.ports import Clock, DispatchJob, Postponed

LANES = 8

LOOK = 0.25
"""Seconds between two looks at the wall clock."""

ATTEMPTS = 5
"""Failed attempts after which a job rests."""

REST = 900.0
"""Seconds after which jobs that failed too often get another chance: a full disk may have room again."""

REMEMBERED = 10_000
"""Finished jobs of which a late repeat is recognised."""

Handler = Callable[[DispatchJob], Awaitable[None]]


class QueuedJob(Struct):
    """A job that is not done; no attempt is made before `not_before`, by the monotonic clock."""

    job: DispatchJob
    not_before: float = 0.0
    attempts: int = 0
    running: bool = False
    holds_lane: bool = True  # while it waits for an attempt


class EmbeddedDispatcher:
    """Delivers the jobs of a workspace; see `lmagent.core.ports.Dispatcher`.

    Args:
        backoff: seconds before the second attempt; doubled for each further one.
        given_up: is called with a job that rests because it failed too often, and the reason.

    Attributes:
        queue: the jobs that are not done, by id, in the order in which they were submitted.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        lanes: int = LANES,
        backoff: float = 2.0,
        given_up: Callable[[DispatchJob, LmagentError], None] = lambda _job, _error: None,
    ) -> None:
        self.queue: dict[str, QueuedJob] = {}
        self._done = deque[str](maxlen=REMEMBERED)
        self._clock = clock
        self._lanes = lanes
        self._backoff = backoff
        self._given_up = given_up
        self._news = anyio.Event()

    async def submit(self, job: DispatchJob) -> None:
        if job.id not in self.queue and job.id not in self._done:
            self.queue[job.id] = QueuedJob(job)
            self._news.set()

    async def cancel(self, job: str) -> bool:
        queued = self.queue.get(job)
        if queued is None or queued.running:
            return False
        del self.queue[job]
        return True

    async def serve(self, handler: Handler) -> None:
        async with anyio.create_task_group() as tasks:
            while True:
                self._news = anyio.Event()
                for queued in self._startable():
                    queued.running = True
                    tasks.start_soon(self._do, queued, handler)
                await self._until_news_or_due()

    def _startable(self) -> list[QueuedJob]:
        """Return the jobs that begin now: of each lane the first that is due, also while it waits for an attempt."""
        found = list[QueuedJob]()
        running = [queued.job.lane for queued in self.queue.values() if queued.running]
        taken = set(running)
        for queued in self.queue.values():
            waits = queued.not_before > self._clock.monotonic()
            is_due = queued.job.run_at <= self._clock.now() and (queued.holds_lane or not waits)
            if is_due and queued.job.lane not in taken:
                taken.add(queued.job.lane)
                if not waits:
                    found.append(queued)
        return found[: max(0, self._lanes - len(running))]

    async def _do(self, queued: QueuedJob, handler: Handler) -> None:
        try:
            await handler(queued.job)
        except Postponed as postponed:
            queued.not_before, queued.holds_lane = self._clock.monotonic() + postponed.seconds, True
        except LmagentError as error:
            self._fail(queued, error)
        else:
            self._done.append(queued.job.id)
            del self.queue[queued.job.id]
        finally:
            queued.running = False
            self._news.set()

    def _fail(self, queued: QueuedJob, error: LmagentError) -> None:
        queued.attempts += 1
        queued.holds_lane = queued.attempts < ATTEMPTS
        pause = self._backoff * 2 ** (queued.attempts - 1) if queued.holds_lane else REST
        queued.not_before = self._clock.monotonic() + pause
        if not queued.holds_lane:
            queued.attempts = 0
            self._given_up(queued.job, error)

    async def _until_news_or_due(self) -> None:
        now, started, news = self._clock.now(), self._clock.monotonic(), self._news
        times = (max(queued.job.run_at - now, queued.not_before - started) for queued in self.queue.values())
        pause = min((time for time in times if time > 0), default=LOOK)
        async with anyio.create_task_group() as tasks:

            async def alarm() -> None:
                await self._clock.sleep(min(LOOK, pause))
                news.set()

            tasks.start_soon(alarm)
            await news.wait()
            tasks.cancel_scope.cancel()
