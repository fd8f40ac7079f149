"""Runs one job of the scheduler in its session. A job that an earlier process began is continued.

The job's id names the job; the session's log shows whether it was accepted, began or ended. So a job that is delivered
twice runs once.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, TypeVar, cast

import anyio
import anyio.to_thread

from lmagent.cluster import without_blocking
from lmagent.core import events as ev
from lmagent.core.commands import SetMode, Submit
from lmagent.core.errors import SessionBusy, StoreError
from lmagent.core.ids import InputOrigin
from lmagent.core.live import AWAY, BACK
from lmagent.core.messages import user
from lmagent.core.ports import DispatchJob, Postponed
from lmagent.engine.endings import local
from lmagent.engine.session import Session, share
from lmagent.schedule.delivering import DeliveredResult, deliver
from lmagent.schedule.inbox import Inbox
from lmagent.schedule.jobs import CronJob, read_jobs
from lmagent.schedule.ledger import CronRun, JobHistory, Ledger, What
from lmagent.schedule.port import JobSession, Sessions
from lmagent.schedule.rights import NO_RIGHTS, Rights, taken_apart
from lmagent.schedule.turns import input_of, turn_of, unattended, wake
from lmagent.store.files import make_private, store_error
from lmagent.store.lock import hold

KINDS = ("wait", "inbox", "cron")  # the kinds of origins whose turns are jobs
BUSY = 1.0  # seconds after which a session that another process has open is tried again

# Seconds after a job was given for which its turn waits for a model server; then the turn ends as an error.
PATIENCE = 86_400.0

T = TypeVar("T")


class JobRunner:
    """Runs jobs by their kind: `wait`, `inbox` or `cron`, the first part of their ids.

    A job that is not `patient` waits neither for a model server nor for a file that is being rewritten.
    """

    def __init__(
        self,
        sessions: Sessions,
        home: Path,
        inbox: Inbox,
        ledger: Ledger,
        submit: Callable[[DispatchJob], Awaitable[None]],
        *,
        patient: bool,
    ) -> None:
        self._sessions = sessions
        self._host = sessions.host
        self._say = sessions.say
        self._locks = home / "cron"
        self._inbox = inbox
        self._ledger = ledger
        self._ledger_lock = anyio.Lock()
        self._submit = submit
        self._patient = patient
        self._reported_busy: set[str] = set()

    async def do(self, job: DispatchJob) -> None:
        """Complete a job. Raise Postponed if its session is open elsewhere, or was closed meanwhile."""
        work = {"wait": self._wake, "inbox": self._task, "cron": self._cron}.get(InputOrigin.of(job.id).kind)
        if work is None:
            self._say(f"{job.id}: no job of this version; left alone")
        else:
            await work(job)

    # --- the ledger -------------------------------------------------------------------------------------------------

    async def history(self, job: str) -> JobHistory:
        async with self._ledger_lock:
            await anyio.to_thread.run_sync(self._ledger.read)
        return self._ledger.history(job)

    async def decided(self, work: Callable[[], T]) -> T:
        """Return the result of a decision that runs while no other process makes one."""

        def locked() -> T:
            with self._ledger.locked():
                return work()

        async with self._ledger_lock:
            return await anyio.to_thread.run_sync(locked)

    async def note(
        self, job: str, what: What, at: int, session: str = "", outcome: str = "", *, delivers: bool = False
    ) -> None:
        async with self._ledger_lock:
            self._ledger.note(job, what, at, session=session, outcome=outcome, delivers=delivers)

    # --- the three kinds --------------------------------------------------------------------------------------------

    async def _wake(self, job: DispatchJob) -> None:
        if not await self._asked(lambda: self._host.store.exists(job.lane)):
            return
        try:
            async with self._opened(job.lane) as known:
                session = known.session
                wait = session.state.wait
                if InputOrigin.of(job.id) not in session.state.work.origins:
                    if wait is None or f"wait:{wait.id}" != job.id or not await wake(session, self._host.clock):
                        return  # it was continued meanwhile
                    self._say(f"{job.lane}: wakes, as it wanted")
                await self._to_its_end(known, job.id)
        except Postponed:
            rows = await anyio.to_thread.run_sync(unattended, self._host.store)
            if any(row.session == job.lane and job.id in (f"wait:{row.ended}", str(row.origin)) for row in rows):
                raise

    async def _task(self, job: DispatchJob) -> None:
        claimed = self._inbox.of_job(job.id)
        if claimed is None:
            self._say(f"{job.id}: no task of the inbox; left alone")
            return
        try:
            whole = self._inbox.read(claimed)
            text, rights = taken_apart(whole or "")
        except StoreError as refusal:
            self._say(str(refusal))
            whole, text, rights = "", "", NO_RIGHTS
        if not text and not await self.has(claimed.session, job.id):
            return  # no task
        if whole is None and await self.turn_of(claimed.session, job.id) != "open":
            return  # done by another process
        async with self._opened(claimed.session) as known:
            await _entitle(known.session, rights, "inbox")
            if InputOrigin.of(job.id) not in known.session.state.work.origins:
                await known.session.send(Submit(message=user(text), by="inbox", origin=InputOrigin.of(job.id)))
                self._say(f"{claimed.session}: begins a task of the inbox: {_title(text)}")
            await self._to_its_end(known, job.id)
            self._inbox.done(claimed)  # a free session can be deleted: then no other record shows that the task is done

    @contextmanager
    def alone(self, name: str) -> Generator[None]:
        """Work on a cron job while no other process does. Raise Postponed while another one does."""
        try:
            make_private(self._locks)
            lock = hold(self._locks / f"{name}.lock", f"cron {name}")
        except SessionBusy:
            raise Postponed(BUSY) from None
        except OSError as error:
            raise store_error(error, "the lock of a job could not be taken", self._locks) from error
        try:
            yield
        finally:
            lock.release()

    async def _cron(self, job: DispatchJob) -> None:
        name, _, at = job.id.removeprefix("cron:").rpartition(":")
        with self.alone(name):
            await self._run_cron(job, name, at)

    async def _run_cron(self, job: DispatchJob, name: str, at: str) -> None:
        history = await self.history(name)
        run = history.runs.get(int(at)) if at.isdigit() else None
        cron = read_jobs(self._host.workspace).jobs.get(name)
        if run is None or run not in history.unfinished:
            return
        again, delivers = run.stage == "delivering", cron is not None and bool(cron.command or cron.webhook)
        target = run.session or occurrence_session(name, run.at)
        has_input = await self.has(target, job.id)
        if cron is None and not has_input:
            if self._patient and history.on:
                raise Postponed(BUSY)  # its file may be being rewritten
            self._say(f"cron {name}: is in no file any more, so it does not run")
            await self.note(name, "ran", run.at, "", "removed")
            return
        if again and not (delivers and has_input):
            return  # its session was deleted, or the delivery taken out of the file
        async with self._opened(target, f"cron {name}") as known:
            if cron is not None:
                await _entitle(known.session, cron.rights, f"cron:{name}")
                if (origin := InputOrigin.of(job.id)) not in known.session.state.work.origins:
                    await known.session.send(Submit(message=user(cron.prompt), by=f"cron:{name}", origin=origin))
                    self._say(f"cron {name}: due {local(run.at)}, runs in {target}")
            finished = await self._to_its_end(known, job.id)
            delivers = delivers and finished is not None
            if not again:
                outcome = finished.ending if finished else "withdrawn"
                await self.note(name, "ran", run.at, target, outcome, delivers=delivers)
        if delivers and finished is not None and cron is not None:
            await self._deliver(cron, job, run, finished, target, again=again)  # may take minutes: the session is free

    async def _deliver(
        self, cron: CronJob, job: DispatchJob, run: CronRun, finished: ev.TurnFinished, session: str, *, again: bool
    ) -> None:
        result = DeliveredResult(cron.id, job.id, run.at, session, finished.ending, finished.reason, finished.answer)
        came = await deliver(self._host, cron, result, again=again)
        await self.note(cron.id, "delivered", run.at, "", came)
        self._say(f"cron {cron.id}: result delivered: {came}")

    # --- sessions ---------------------------------------------------------------------------------------------------

    async def _to_its_end(self, known: JobSession, job: str) -> ev.TurnFinished | None:
        """Run or resume the job's turn to its end; return that, or None if the turn never began."""
        session, origin = known.session, InputOrigin.of(job)
        id = session.state.session
        found = await self.turn_of(id, job)
        if not isinstance(found, ev.TurnFinished):
            given = await self._asked(lambda: input_of(self._host.store, id, origin))
            until = (given.ts if given else 0.0) + PATIENCE if self._patient else 0.0
            unlisten = session.listen(self._report_outage(id))
            try:
                await known.run_job(origin, is_open=found == "open", patient_until=until)
            finally:
                unlisten()
            found = await self.turn_of(id, job)
            if isinstance(found, ev.TurnFinished):
                self._say(f"{id}: {found.ending}{f': {found.reason}' if found.reason else ''}")
        if (wait := session.state.wait) is not None:
            await self._submit(DispatchJob(f"wait:{wait.id}", id, wait.until))
        return found if isinstance(found, ev.TurnFinished) else None

    def _report_outage(self, session: str) -> Callable[[ev.Event], None]:
        def listen(event: ev.Event) -> None:
            if isinstance(event, ev.Notice) and event.code in (AWAY, BACK):
                self._say(f"{session}: {event.text}")

        return listen

    @asynccontextmanager
    async def _opened(self, id: str, waiting: str = "") -> AsyncGenerator[JobSession]:
        """Open or begin a session; if another process has it open, report once that `waiting` waits, and postpone."""
        async with AsyncExitStack() as stack:
            try:
                known = await stack.enter_async_context(self._sessions.for_job(id))
            except SessionBusy:
                if waiting and waiting not in self._reported_busy:
                    self._reported_busy.add(waiting)
                    self._say(f"{waiting}: waits until session {id} is closed, which is open elsewhere")
                raise Postponed(BUSY) from None
            self._reported_busy.discard(waiting)
            yield known

    # --- their logs -------------------------------------------------------------------------------------------------

    async def has(self, session: str, job: str) -> bool:
        """Return whether a session's log has the input of a job."""
        return await self._asked(lambda: input_of(self._host.store, session, InputOrigin.of(job))) is not None

    async def turn_of(self, session: str, job: str) -> ev.TurnFinished | Literal["open", ""]:
        """Return the end of a job's turn; "open" while it has not ended, and "" before it began."""
        return await self._asked(lambda: turn_of(self._host.store, session, InputOrigin.of(job)))

    async def _asked(self, work: Callable[[], T]) -> T:
        return await without_blocking(self._host.settings, work)


async def _entitle(session: Session, rights: Rights, by: str) -> None:
    """Grant a job's rights to its session. Grants end with a process, so each process gives them again."""
    if rights.permission and session.state.mode != rights.permission:
        await session.send(SetMode(mode=cast("ev.PermissionMode", rights.permission), by=by))
    if rights.allow and (grant := "\n".join(rights.allow)) not in session.state.grants:
        await share(session, grant, by)


def occurrence_session(job: str, at: int) -> str:
    """Return the id of the session in which a cron job runs at a time; a repeated run finds the same session."""
    digest = hashlib.sha256(f"cron:{job}:{at}".encode()).hexdigest()[:12]
    return f"{datetime.fromtimestamp(at, UTC):%Y%m%d_%H%M%S}_{digest}"


def _title(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= 80 else f"{words[:79]}…"
