"""The scheduler runs the work of a workspace when it is due: sessions that wait, tasks of the inbox, cron jobs.

Several processes may do this for one workspace. Files and logs define the work, and each process finds all of it; the
lock of a session, and that of a cron job, let one of them do it. Work that is found again is submitted again: a known
job is not taken twice.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec

from lmagent.core.errors import ConfigError, LmagentError, SessionBusy, StoreError
from lmagent.core.events import TurnFinished
from lmagent.core.plurals import plural
from lmagent.core.ports import DispatchJob, Postponed
from lmagent.dispatch.embedded import REST, Handler
from lmagent.schedule.due import decide, next_due
from lmagent.schedule.inbox import Inbox
from lmagent.schedule.job_runner import KINDS, JobRunner, occurrence_session
from lmagent.schedule.jobs import CronJob, JobList, find_job, read_jobs, stamps
from lmagent.schedule.ledger import CronRun, Ledger, LedgerEntry
from lmagent.schedule.port import Sessions
from lmagent.schedule.rights import TRUST, WAIT, may_run_jobs, waiting_for_trust
from lmagent.schedule.turns import unattended
from lmagent.store.files import make_private, store_error
from lmagent.store.index import Unattended
from lmagent.store.lock import Lock, hold

TICK = 0.5  # longest pause between two looks at the wall clock, in seconds: the clock may have been set

# Seconds for which the files must be unchanged before a job that is in none of them counts as removed: some programs
# write a file by emptying or removing it first.
SETTLED = 2.0


class Scheduler:
    """Runs the work of a workspace when it is due.

    At a `startup` it runs the jobs for that, unless another scheduler runs already. A `single` one runs only the job of
    `run_now`. `handlers` do jobs of further kinds, the parts of their ids before the colon.
    """

    def __init__(
        self,
        sessions: Sessions,
        *,
        startup: bool = False,
        single: bool = False,
        handlers: Mapping[str, Handler] | None = None,
    ) -> None:
        self._sessions = sessions
        self._host = host = sessions.host
        self._clock = host.clock
        self._startup = startup
        self._single = single
        self._told: set[str] = set()
        self._trusted = False
        self._stamps: object = None
        self._submitted: object = None  # the stamp of the ledger whose unfinished runs were submitted
        self._changed = float("inf")
        self._jobs = JobList({})
        self._looked = float("-inf")
        self._due: dict[str, int | None] = {}
        self._presence: Lock | None = None
        self.home = _home(host.workspace)
        self.ledger = Ledger(self.home, host.clock.now)
        self.inbox = Inbox(self.home)
        self.dispatcher = host.dispatcher(self._given_up, sessions.say)
        self._handlers = handlers or {}
        self._work = JobRunner(sessions, self.home, self.inbox, self.ledger, self.dispatcher.submit, patient=not single)

    async def run(self) -> None:
        """Run due work until cancelled. The next scheduler continues the work that is cut off by that."""
        try:
            async with self._sessions.running(), anyio.create_task_group() as tasks:
                tasks.start_soon(self.dispatcher.serve, self._do)
                if self._startup and self._is_first():
                    await self._guarded(self._begin)
                while True:
                    await self.look()
                    await self._clock.sleep(self._pause())
        finally:
            if self._presence is not None:
                self._presence.release()

    async def look(self) -> None:
        if self._single:
            return
        now = self._clock.now()
        if now < self._looked:
            self._due.clear()  # the clock was put back: work of the future may be due now
        if abs(now - self._looked) >= self._host.settings.scheduler_poll_interval:
            self._looked = now
            await self._guarded(self._look_at_inbox)
            await self._guarded(self._look_at_sessions)
            if self._startup:
                self._is_first()
        if self._trusted:
            await self._guarded(self._look_at_jobs)

    # --- a job that the user starts ---------------------------------------------------------------------------------

    async def run_now(self, id: str, by: str) -> DispatchJob:
        """Claim a time for a cron job now, whatever its schedule is; return the job that runs it."""
        job = find_job(self._host.workspace, id)
        if not may_run_jobs(self._host.settings, self._host.workspace):
            raise ConfigError(WAIT, fix=f"look at them, then: {TRUST}")
        made = _job_of(id, await self._work.decided(partial(self._claim_now, job, by)), job)
        await self.dispatcher.submit(made)
        return made

    def _claim_now(self, job: CronJob, by: str) -> int:
        now = self._clock.now()
        at = int(now)
        while at in self.ledger.history(job.id).runs:
            at += 1
        self.ledger.append(LedgerEntry(now, job.id, "claimed", at, session=_session_of(job, at), by=by))
        return at

    async def run_to_its_end(self, id: str) -> TurnFinished | None:
        """Run a cron job now, here or in a scheduler that is faster; return how its turn ended."""
        job, session = None, ""
        try:
            job = await self.run_now(id, "person")
            async with self._sessions.running(), anyio.create_task_group() as tasks:
                tasks.start_soon(self.dispatcher.serve, self._do)
                while not _is_over(run := await self._run_of(id, job), read_jobs(self._host.workspace).jobs.get(id)):
                    await self._clock.sleep(TICK / 5)
                session = run.session
                tasks.cancel_scope.cancel()
        except anyio.get_cancelled_exc_class():
            if job is not None:
                with anyio.CancelScope(shield=True):
                    await self._let_go(id, job)
            raise
        found = await self._work.turn_of(session, job.id) if session else None
        return found if isinstance(found, TurnFinished) else None

    async def _run_of(self, id: str, job: DispatchJob) -> CronRun:
        return (await self._work.history(id)).runs[int(job.id.rpartition(":")[2])]

    async def _let_go(self, id: str, job: DispatchJob) -> None:
        """Record that the user has stopped a run: otherwise it would count as running and hold up later runs.

        A run that another scheduler has taken over is left to that.
        """
        try:
            with self._work.alone(id):
                run = await self._run_of(id, job)
                begun = await self._work.has(run.session, job.id)
                found = await self._work.turn_of(run.session, job.id) if begun else None
                if run.stage == "claimed" and not isinstance(found, str):
                    await self._work.note(id, "ran", run.at, run.session, found.ending if found else "withdrawn")
        except Postponed:
            return

    # --- looking ----------------------------------------------------------------------------------------------------

    async def _look_at_inbox(self) -> None:
        """Submit the work of a folder's files only once the user trusts the folder."""
        self._trusted = may_run_jobs(self._host.settings, self._host.workspace)
        if not self._trusted:
            self._tell(waiting_for_trust(self._host.workspace))
            return
        claimed, problems = await anyio.to_thread.run_sync(self.inbox.claim, self._clock.now())
        self._tell(*problems)
        for task in claimed:
            await self.dispatcher.submit(DispatchJob(task.job, task.session))

    async def _look_at_sessions(self) -> None:
        for row in await anyio.to_thread.run_sync(unattended, self._host.store):
            if row.session in self._host.sessions and row.session not in self._sessions.sessions:
                continue  # the process that has it open, with a conversation or a sub-agent, continues it
            if row.until:
                await self.dispatcher.submit(DispatchJob(f"wait:{row.ended}", row.session, row.until))
            elif self._trusted and row.origin.kind in KINDS:  # a gateway continues its own inputs
                await self.dispatcher.submit(DispatchJob(str(row.origin), _lane_of(row)))

    async def _look_at_jobs(self) -> None:
        await self._read_files()
        now = self._clock.now()
        await self._submit_unfinished()
        for job in self._jobs.jobs.values():
            due = self._due.get(job.id, 0)
            if due is None or due > now:
                continue
            history = await self._work.history(job.id)
            if decide(job, history, now):
                for entry in await self._work.decided(partial(self._decide, job)):
                    if entry.what == "missed":
                        self._sessions.say(
                            f"cron {job.id}: missed {plural(entry.count, 'time')} while no scheduler ran"
                        )
                history = self.ledger.history(job.id)
            busy = history.busy and job.schedule.kind != "startup"
            self._due[job.id] = int(now) + 1 if busy else next_due(job, history, now)
        await self._submit_unfinished()

    async def _submit_unfinished(self) -> None:
        """Submit the runs that any process has claimed, and that have not ended."""
        await self._work.history("")
        if self._submitted == self.ledger.stamp:
            return
        self._submitted = self.ledger.stamp
        for id in self.ledger.jobs():
            job = self._jobs.jobs.get(id)
            for run in self.ledger.history(id).unfinished:
                await self.dispatcher.submit(_job_of(id, run.at, job))

    def _decide(self, job: CronJob) -> list[LedgerEntry]:
        entries = [
            msgspec.structs.replace(entry, session=_session_of(job, entry.at)) if entry.what == "claimed" else entry
            for entry in decide(job, self.ledger.history(job.id), self._clock.now())
        ]
        if entries:
            self.ledger.append(*entries)
        return entries

    async def _read_files(self) -> None:
        found, now = stamps(self._host.workspace), self._clock.monotonic()
        if found != self._stamps:
            self._stamps, self._changed = found, now
            self._jobs = await anyio.to_thread.run_sync(read_jobs, self._host.workspace)
            self._due.clear()
            self._tell(*self._jobs.problems)
        elif now - self._changed >= SETTLED:
            self._changed = float("inf")
            await self._work.history("")  # reads the ledger; without a job that is gone nothing is written
            if self._removed() and not self._jobs.problems:  # a file that cannot be read removes no job
                await self._work.decided(self._drop_removed)

    def _removed(self) -> list[str]:
        return [id for id in self.ledger.jobs() if id not in self._jobs.jobs and self.ledger.history(id).on]

    def _drop_removed(self) -> None:
        self.ledger.append(*(LedgerEntry(self._clock.now(), id, "off") for id in self._removed()))

    async def _begin(self) -> None:
        if not may_run_jobs(self._host.settings, self._host.workspace):
            return
        await self._read_files()
        for job in self._jobs.jobs.values():
            if job.enabled and job.schedule.kind == "startup":
                await self.run_now(job.id, "startup")

    def _is_first(self) -> bool:
        """Return whether this is the first scheduler of the workspace; it takes the place of one that has gone."""
        if self._presence is None:
            with suppress(SessionBusy, OSError):
                self._presence = hold(self.home / "scheduler.lock", "the scheduler")
        return self._presence is not None

    def _pause(self) -> float:
        now = self._clock.now()
        times = [due - now for due in self._due.values() if due is not None]
        return max(0.02, min([TICK, self._host.settings.scheduler_poll_interval, *times]))

    # --- jobs -------------------------------------------------------------------------------------------------------

    async def _do(self, job: DispatchJob) -> None:
        """Run a job. A failing job must not stop the others."""
        try:
            await self._handlers.get(job.id.partition(":")[0], self._work.do)(job)
        except Postponed:
            raise
        except Exception as error:
            failure = error if isinstance(error, LmagentError) else self._sessions.unexpected(error)
            self._tell(f"{job.id}: {failure}")
            raise failure from error

    def _given_up(self, job: DispatchJob, error: LmagentError) -> None:
        self._tell(f"{job.id}: failed several times, and is tried again in {REST / 60:g} minutes: {error}")

    async def _guarded(self, work: Callable[[], Awaitable[None]]) -> None:
        """Report a failure once, and try again at the next look."""
        try:
            await work()
        except LmagentError as error:
            self._tell(str(error))

    def _tell(self, *problems: str) -> None:
        for problem in problems:
            if problem and problem not in self._told:
                self._told.add(problem)
                self._sessions.say(problem)


def _home(workspace: Path) -> Path:
    """Return the folder of our own files. Raise StoreError if it cannot be made, or is a link."""
    home = workspace / ".lmagent"
    if home.is_symlink():
        raise StoreError(f"{home} is a symbolic link, so nothing is scheduled", fix=f"move it away: {home}")
    try:
        make_private(home)
    except OSError as error:
        raise store_error(error, "nothing can be scheduled", home) from error
    return home


def _session_of(job: CronJob, at: int) -> str:
    return job.session_id or occurrence_session(job.id, at)


def _job_of(id: str, at: int, job: CronJob | None) -> DispatchJob:
    """Return the job of a run. Runs in sessions of their own share a lane: a job does not overlap itself."""
    return DispatchJob(f"cron:{id}:{at}", (job.session_id if job is not None else "") or f"cron:{id}")


def _lane_of(row: Unattended) -> str:
    name, _, at = row.origin.key.rpartition(":")
    own = row.origin.kind == "cron" and at.isdigit() and row.session == occurrence_session(name, int(at))
    return f"cron:{name}" if own else row.session


def _is_over(run: CronRun, job: CronJob | None) -> bool:
    delivers = job is not None and bool(job.command or job.webhook)
    return run.stage == "delivered" or (run.stage == "ran" and not delivers)
