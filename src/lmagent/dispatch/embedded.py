"""The embedded dispatcher: a loop over the table of jobs, in any number of processes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

import anyio

from lmagent.core.errors import LmagentError, StoreError
from lmagent.core.ports import Clock, DispatchJob, Postponed
from lmagent.dispatch.table import Claim, JobTable

LANES = 8

LEASE = 30.0
"""Seconds after which a job is taken from a process that does not answer; a living one renews its lease every third of
that.

A dead process is noticed at the next look.
"""

LOOK = 0.25
"""Seconds between two looks at other processes' jobs and at the wall clock."""

ATTEMPTS = 5
"""Failed attempts after which a job is given up until a process starts serving again."""

Handler = Callable[[DispatchJob], Awaitable[None]]


class EmbeddedDispatcher:
    """Delivers the jobs of a workspace; see `lmagent.core.ports.Dispatcher`.

    Args:
        backoff: seconds before the second attempt; doubled for each further one.
        given_up: is called with a job that failed for the last time, and the reason.
    """

    def __init__(
        self,
        table: JobTable,
        clock: Clock,
        *,
        lanes: int = LANES,
        backoff: float = 2.0,
        given_up: Callable[[DispatchJob, LmagentError], None] = lambda _job, _error: None,
    ) -> None:
        self.table = table
        self._clock = clock
        self._lanes = lanes
        self._backoff = backoff
        self._given_up = given_up
        self._news = anyio.Event()

    async def submit(self, job: DispatchJob) -> None:
        if self.table.add(job):
            self._news.set()

    async def cancel(self, job: str) -> bool:
        return self.table.remove(job)

    async def serve(self, handler: Handler) -> None:
        self.table.revive(self._clock.now())
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._heartbeat)
                while True:
                    self._news = anyio.Event()
                    for claim in self._claim():
                        tasks.start_soon(self._do, claim, handler)
                    await self._until_news_or_due()
        finally:
            for claim in list(self.table.held.values()):  # claimed, and cut off before it could begin
                self._settle(partial(self.table.give_back, claim))

    def _claim(self) -> list[Claim]:
        with suppress(StoreError):  # a database that is locked for long gets another look later
            return self.table.claim(self._clock.now(), self._lanes - len(self.table.held), LEASE)
        return []

    async def _do(self, claim: Claim, handler: Handler) -> None:
        try:
            await handler(claim.job)
        except Postponed as postponed:
            later = self._clock.now() + postponed.seconds
            self._settle(partial(self.table.give_back, claim, later))
        except LmagentError as error:
            self._fail(claim, error)
        except BaseException:  # cut off, or a fault in the program: another process must do it again, at once
            self._settle(partial(self.table.give_back, claim))
            raise
        else:
            self._settle(partial(self.table.done, claim, self._clock.now()))
        self._news.set()

    def _fail(self, claim: Claim, error: LmagentError) -> None:
        last = claim.attempts + 1 >= ATTEMPTS
        retry_at = None if last else self._clock.now() + self._backoff * 2**claim.attempts
        self._settle(partial(self.table.failed, claim, str(error), retry_at=retry_at))
        if last:
            self._given_up(claim.job, error)

    def _settle(self, note: Callable[[], None]) -> None:
        """Record how a job ended. If that fails, it stays claimed until its lease ends, and counts as a repeat then."""
        with suppress(StoreError):
            note()

    async def _heartbeat(self) -> None:
        while True:
            await self._clock.sleep(LEASE / 3)
            with suppress(StoreError):
                self.table.renew(self._clock.now(), LEASE)

    async def _until_news_or_due(self) -> None:
        now, due = self._clock.now(), None
        with suppress(StoreError):
            due = self.table.next_due(now)
        pause = LOOK if due is None else min(LOOK, max(0.0, due - now))
        news = self._news
        async with anyio.create_task_group() as tasks:

            async def alarm() -> None:
                await self._clock.sleep(pause)
                news.set()

            tasks.start_soon(alarm)
            await news.wait()
            tasks.cancel_scope.cancel()
