"""The queue of a workspace, which many processes serve: Procrastinate's, with the jobs' ids, due times and rests.

Procrastinate decides which job is next: one at a time of a lane, by priority and age. It does so by functions of its
schema, which the functions of `migrations/005_queue.sql` call. Its `Worker` is not used: it ends when a connection is
cut, and a job whose end it could not record then counts as running for as long as its process lives.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import anyio
import anyio.abc
from anyio.lowlevel import checkpoint
from msgspec import Struct

from lmagent.cluster.store import ClusterStore
from lmagent.cluster.threads import in_thread
from lmagent.core.errors import ConfigError, LmagentError, StoreError
from lmagent.core.ports import Clock, DispatchJob, Postponed
from lmagent.dispatch.embedded import ATTEMPTS, LANES, REST, Handler

POLL = 1.0  # seconds between two looks for jobs that are due, or whose worker is dead
KNOWN = 60.0  # seconds for which a submitted job is not submitted again by this process
KEPT = "1 day"  # for which a repeat of a job that is done is known
TIDY = 600.0  # seconds between two deletions of such jobs
PATIENCE = 10.0  # seconds for which `submit` and `cancel` wait for a lost database
LONGEST = 40  # bytes of a workspace's name: the channel of its queue may have 63

LAST = ("cron", "inbox")  # the kinds of jobs that no user waits for
USERS = 10  # priority of the other jobs

NEVER = 1e10  # seconds; a job that is due later than that is due then


class TakenJob(Struct):
    """A job that this process runs; `run` numbers its deliveries, `attempts` have failed."""

    id: str
    lane: str
    run: int
    attempts: int


class ClusterDispatcher:
    """Delivers the jobs of a workspace to the processes that serve it; see `lmagent.core.ports.Dispatcher`.

    Args:
        store: the sessions of the workspace.
        backoff: seconds before the second attempt; doubled for each further one.
        given_up: is called with a job that rests because it failed too often, and the reason.
        say: is called with a line about the database, once when it is lost and once when it is back.

    Attributes:
        running: the jobs that run here.
        is_draining: whether no job begins here any more; the jobs that run may end.
    """

    def __init__(
        self,
        store: ClusterStore,
        clock: Clock,
        *,
        lanes: int = LANES,
        backoff: float = 2.0,
        given_up: Callable[[DispatchJob, LmagentError], None] = lambda _job, _error: None,
        say: Callable[[str], None] = lambda _text: None,
    ) -> None:
        workspace = store.workspace
        if len(workspace.encode()) > LONGEST:
            text = f"the name of the workspace, {workspace!r}, is longer than {LONGEST} bytes"
            raise ConfigError(text, fix="give it a shorter one by cluster_workspace, or --label NAME=PATH")
        self.running: list[TakenJob] = []
        self.is_draining = False
        self._presence = store.member.presence
        self._listener = store.member.listener
        self._workspace = workspace
        self._clock = clock
        self._lanes = lanes
        self._backoff = backoff
        self._given_up = given_up
        self._say = say
        self._is_lost = False
        self._known: dict[str, float] = {}
        self._news = anyio.Event()
        self._next_look = self._tidied = float("-inf")  # monotonic seconds

    async def submit(self, job: DispatchJob) -> None:
        now = time.monotonic()
        if self._known.get(job.id, 0.0) > now:
            return
        delay = min(max(0.0, job.run_at - self._clock.now()), NEVER) if job.run_at else 0.0  # to the database's clock
        priority = 0 if job.id.partition(":")[0] in LAST else USERS
        await self._call("job_submit", job.id, job.lane, priority, delay, patience=PATIENCE)
        self._known = {id: until for id, until in self._known.items() if until > now}
        self._known[job.id] = now + KNOWN
        self._next_look = min(self._next_look, now + delay)
        self._wake()

    async def cancel(self, job: str) -> bool:
        self._known.pop(job, None)
        return bool((await self._call("job_cancel", job, patience=PATIENCE))[0][0])

    async def serve(self, handler: Handler) -> None:
        loop = asyncio.get_running_loop()

        def heard(_payload: str) -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._wake)

        channel = f"procrastinate_queue_v1#{self._workspace}"
        unwatch = self._listener.watch(channel, heard)
        self._next_look = float("-inf")
        try:
            async with anyio.create_task_group() as tasks:
                while True:
                    self._news = anyio.Event()
                    pause = await self._look(handler, tasks)
                    with anyio.move_on_after(pause):
                        await self._news.wait()
        finally:
            unwatch()

    def drain(self) -> None:
        """Begin no more jobs; other processes take those that wait."""
        self.is_draining = True

    # --- looking ----------------------------------------------------------------------------------------------------

    async def _look(self, handler: Handler, tasks: anyio.abc.TaskGroup) -> float:
        """Begin the jobs that can begin; return the seconds until there may be more."""
        try:
            process = await in_thread(lambda: self._presence.id)
            if time.monotonic() >= self._next_look and not self.is_draining:
                await self._tend(process)
            while len(self.running) < self._lanes and not self.is_draining:
                await checkpoint()  # work in a thread ends before a cancellation is seen
                if not (rows := await self._call("job_take", process)):
                    break
                taken = TakenJob(*rows[0])
                self.running.append(taken)
                tasks.start_soon(self._do, taken, handler)
        except StoreError as lost:
            self._report(lost)
            return POLL
        self._report(None)
        return POLL if self.is_draining else max(0.0, self._next_look - time.monotonic())

    async def _tend(self, process: int) -> None:
        now = time.monotonic()
        if now - self._tidied >= TIDY:
            await self._call("job_forget", KEPT)
            self._tidied = now
        ((_, due),) = await self._call("job_tend", process, [taken.id for taken in self.running])
        self._next_look = now + (POLL if due is None else min(POLL, max(0.0, due)))

    def _report(self, lost: StoreError | None) -> None:
        """Say once that jobs wait for the database, and once that they do not any more."""
        if (lost is not None) != self._is_lost:
            self._is_lost = lost is not None
            self._say(f"jobs wait: {lost}" if lost else "the database answers again")

    def _wake(self) -> None:
        self._news.set()

    # --- jobs -------------------------------------------------------------------------------------------------------

    async def _do(self, taken: TakenJob, handler: Handler) -> None:
        job = DispatchJob(taken.id, taken.lane)
        try:
            await checkpoint()
            await handler(job)
        except Postponed as postponed:
            await self._settle(taken, "job_postpone", postponed.seconds, 0)
            self._wake_after(postponed.seconds)
        except LmagentError as error:
            await self._fail(taken, error)
        except BaseException:
            with anyio.CancelScope(shield=True), suppress(StoreError):  # else it is returned when this process is dead
                await self._call("job_postpone", taken.id, taken.run, 0.0, taken.attempts)
            raise
        else:
            await self._settle(taken, "job_end")
        finally:
            self.running.remove(taken)
            self._wake()

    async def _fail(self, taken: TakenJob, error: LmagentError) -> None:
        attempts = taken.attempts + 1
        if attempts < ATTEMPTS:
            pause = self._backoff * 2 ** (attempts - 1)
            await self._settle(taken, "job_postpone", pause, attempts)
            self._wake_after(pause)
        else:
            await self._settle(taken, "job_rest", REST, str(error))
            self._given_up(DispatchJob(taken.id, taken.lane), error)

    async def _settle(self, taken: TakenJob, function: str, *arguments: Any) -> None:
        """Record the end of a delivery, as soon as the database can be reached."""
        while True:
            with anyio.CancelScope(shield=True):
                try:
                    await self._call(function, taken.id, taken.run, *arguments)
                except StoreError as lost:
                    self._report(lost)
                else:
                    return
            await anyio.sleep(POLL)

    def _wake_after(self, seconds: float) -> None:
        if seconds < POLL:
            asyncio.get_running_loop().call_later(seconds, self._wake)

    # --- the database -----------------------------------------------------------------------------------------------

    async def _call(self, function: str, *arguments: Any, patience: float = 0.0) -> list[tuple[Any, ...]]:
        """Return the rows of a function of the schema, whose first argument is the workspace."""
        values = (self._workspace, *arguments)
        query = f"SELECT * FROM {function}({', '.join(['%s'] * len(values))})".encode()
        return await in_thread(lambda: self._presence.database.rows(query, values, patience=patience))
