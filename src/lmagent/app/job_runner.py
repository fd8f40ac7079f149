"""Runs one job of the scheduler in its session. A job that an earlier process began is continued.

The job's id names the job; the session's log shows whether it was accepted, began or ended. So a job that is delivered
twice runs once.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime

from msgspec import Struct

from lmagent.app.entitled import entitle
from lmagent.app.open_session import OpenSession, turn_of, wake
from lmagent.app.runner import Runner, is_there
from lmagent.app.upkeep import unattended
from lmagent.core import events as ev
from lmagent.core.commands import Submit
from lmagent.core.errors import SessionBusy, StoreError
from lmagent.core.ids import InputOrigin
from lmagent.core.live import AWAY, BACK
from lmagent.core.messages import user
from lmagent.core.ports import DispatchJob, Postponed
from lmagent.engine.endings import local
from lmagent.engine.session import Session
from lmagent.schedule.inbox import Inbox
from lmagent.schedule.jobs import CronJob, read_jobs
from lmagent.schedule.ledger import CronRun, JobHistory, What
from lmagent.schedule.rights import NO_RIGHTS, taken_apart

BUSY = 1.0
"""Seconds after which a session that another process has open is tried again."""

KINDS = ("wait", "inbox", "cron")
"""Kinds of jobs: the first part of their ids."""

PATIENCE = 86_400.0
"""Seconds after a job was given for which its turn waits for a model server; then the turn ends as an error."""

Say = Callable[[str], None]
Note = Callable[[str, What, int, str, str], Awaitable[None]]
"""Writes into the ledger: job, what, time, session, outcome."""


class Waits(Struct, frozen=True):
    """A session that a turn has left waiting."""

    session: str
    event: str
    until: float

    @property
    def job(self) -> DispatchJob:
        return DispatchJob(f"wait:{self.event}", self.session, self.until)


class JobRunner:
    """Runs the scheduler's jobs.

    Args:
        history: returns the ledger's history of a cron job.
        waits: receives each session that a turn has left waiting for a time.
        patient: whether a job waits for a model server that cannot be reached, and for a file that is being rewritten.
    """

    def __init__(
        self,
        runner: Runner,
        inbox: Inbox,
        history: Callable[[str], Awaitable[JobHistory]],
        note: Note,
        waits: Callable[[Waits], Awaitable[None]],
        say: Say,
        *,
        patient: bool,
    ) -> None:
        self._runner = runner
        self._host = runner.host
        self._inbox = inbox
        self._history = history
        self._note = note
        self._waits = waits
        self._say = say
        self._patient = patient
        self._reported_busy: set[str] = set()

    async def do(self, job: DispatchJob) -> None:
        """Complete a job.

        Raises:
            Postponed: another process has its session open, or the session was closed meanwhile.
            LmagentError: it failed; it may be tried again.
        """
        kind = job.id.partition(":")[0]
        if kind == "wait":
            await self._wake(job)
        elif kind == "inbox":
            await self._task(job)
        elif kind == "cron":
            await self._cron(job)
        else:
            self._say(f"{job.id}: no job of this version; left alone")

    # --- the three kinds --------------------------------------------------------------------------------------------

    async def _wake(self, job: DispatchJob) -> None:
        event = job.id.removeprefix("wait:")
        if not is_there(self._host.store, job.lane):
            return
        try:
            async with self._opened(job.lane) as known:
                session = known.session
                wait = session.state.wait
                if InputOrigin.of(job.id) not in session.state.work.origins:
                    if wait is None or wait.id != event or not await wake(session, self._host.clock):
                        return  # it was continued meanwhile
                    self._say(f"{job.lane}: wakes, as it wanted")
                await self._to_its_end(known, job.id)
        except Postponed:
            if self._still_waits(job):
                raise

    async def _task(self, job: DispatchJob) -> None:
        claimed = self._inbox.of_job(job.id)
        if claimed is None:
            self._say(f"{job.id}: no task of the inbox; left alone")
            return
        begun = self.has(claimed.session, job.id)
        try:
            text, rights = taken_apart(self._inbox.read(claimed) or "")
        except StoreError as refusal:
            self._say(str(refusal))
            text, rights = "", NO_RIGHTS
        if not begun and not text:
            return  # done by another process, or no task
        async with self._opened(claimed.session) as known:
            await entitle(known.session, rights, "inbox")
            if InputOrigin.of(job.id) not in known.session.state.work.origins:
                await known.session.send(Submit(message=user(text), by="inbox", origin=InputOrigin.of(job.id)))
                self._say(f"{claimed.session}: begins a task of the inbox: {_title(text)}")
            await self._to_its_end(known, job.id)
            self._inbox.done(claimed)  # a free session can be deleted: then no other record shows that the task is done

    async def _cron(self, job: DispatchJob) -> None:
        name, _, at = job.id.removeprefix("cron:").rpartition(":")
        history = await self._history(name)
        run = history.runs.get(int(at)) if at.isdigit() else None
        cron = read_jobs(self._host.workspace).jobs.get(name)
        if run is None or run.stage in ("missed", "delivered"):
            return
        target = run.session or occurrence_session(name, run.at)
        if cron is None and not self.has(target, job.id):
            if self._patient and history.on:
                raise Postponed(BUSY)  # its file may be being rewritten
            self._say(f"cron {name}: is in no file any more, so it does not run")
            await self._note(name, "ran", run.at, "", "removed")
            return
        if run.stage != "claimed" and not self.has(target, job.id):
            return  # it was taken back before it began, or its session was deleted
        async with self._opened(target, f"cron {name}") as known:
            finished = await self._cron_turn(known, job, cron, run)
            if run.stage == "claimed":
                await self._note(name, "ran", run.at, target, finished.ending if finished else "withdrawn")
        if finished is not None and cron is not None and (cron.command or cron.webhook):
            await self._deliver(cron, job, run, finished, target)  # may take minutes: the session is free for others

    async def _cron_turn(
        self, known: OpenSession, job: DispatchJob, cron: CronJob | None, run: CronRun
    ) -> ev.TurnFinished | None:
        session = known.session
        if cron is not None:
            await entitle(session, cron.rights, f"cron:{cron.id}")
        if InputOrigin.of(job.id) not in session.state.work.origins:
            assert cron is not None
            await session.send(Submit(message=user(cron.prompt), by=f"cron:{cron.id}", origin=InputOrigin.of(job.id)))
            self._say(f"cron {cron.id}: due {local(run.at)}, runs in {session.state.session}")
        return await self._to_its_end(known, job.id)

    async def _deliver(
        self, cron: CronJob, job: DispatchJob, run: CronRun, finished: ev.TurnFinished, session: str
    ) -> None:
        from lmagent.app.delivering import DeliveredResult, deliver  # few jobs deliver

        again = run.stage == "delivering"
        if not again:
            await self._note(cron.id, "delivering", run.at, "", "")
        result = DeliveredResult(cron.id, job.id, run.at, session, finished.ending, finished.reason, finished.answer)
        came = await deliver(self._host, cron, result, again=again)
        await self._note(cron.id, "delivered", run.at, "", came)
        self._say(f"cron {cron.id}: result delivered: {came}")

    # --- sessions ---------------------------------------------------------------------------------------------------

    async def _to_its_end(self, known: OpenSession, job: str) -> ev.TurnFinished | None:
        """Run or resume the job's turn to its end; return that, or None if the turn never began."""
        session, store, origin = known.session, self._host.store, InputOrigin.of(job)
        found = turn_of(store, known.id, origin)
        if not isinstance(found, ev.TurnFinished):
            until = self._given_at(session, origin) + PATIENCE if self._patient else 0.0
            unlisten = session.listen(self._report_outage(known.id))
            try:
                await known.run_job(origin, is_open=found == "open", patient_until=until)
            finally:
                unlisten()
            found = turn_of(store, known.id, origin)
            if isinstance(found, ev.TurnFinished):
                reason = f": {found.reason}" if found.reason else ""
                self._say(f"{known.id}: {found.ending}{reason}")
        wait = session.state.wait
        if wait is not None:
            await self._waits(Waits(known.id, wait.id, wait.until))
        return found if isinstance(found, ev.TurnFinished) else None

    def _report_outage(self, session: str) -> Callable[[ev.Event], None]:
        def listen(event: ev.Event) -> None:
            if isinstance(event, ev.Notice) and event.code in (AWAY, BACK):
                self._say(f"{session}: {event.text}")

        return listen

    def _given_at(self, session: Session, origin: InputOrigin) -> float:
        inputs = (one for one in self._host.store.read(session.state.session) if isinstance(one, ev.InputReceived))
        return next((one.ts for one in inputs if one.origin == origin), 0.0)

    @asynccontextmanager
    async def _opened(self, id: str, waiting: str = "") -> AsyncGenerator[OpenSession]:
        """Open or begin a session, and release it afterwards.

        Args:
            waiting: the name to report as waiting if another process has the session open; empty to report nothing.

        Raises:
            Postponed: another process has it open.
        """
        async with AsyncExitStack() as stack:
            try:
                known = await stack.enter_async_context(self._runner.for_job(id))
            except SessionBusy:
                if waiting and waiting not in self._reported_busy:
                    self._reported_busy.add(waiting)
                    self._say(f"{waiting}: waits until session {id} is closed, which is open elsewhere")
                raise Postponed(BUSY) from None
            self._reported_busy.discard(waiting)
            yield known

    def has(self, session: str, job: str) -> bool:
        """Return whether a session's log has the input of a job."""
        origin = InputOrigin.of(job)
        return is_there(self._host.store, session) and any(
            isinstance(event, ev.InputReceived) and event.origin == origin for event in self._host.store.read(session)
        )

    def _still_waits(self, job: DispatchJob) -> bool:
        rows = unattended(self._host.store.root)
        ours = (row for row in rows if row.session == job.lane)
        return any(job.id in (f"wait:{row.ended}", str(row.origin)) for row in ours)


def occurrence_session(job: str, at: int) -> str:
    """Return the id of the session in which a cron job runs at a time; a repeated run finds the same session."""
    digest = hashlib.sha256(f"cron:{job}:{at}".encode()).hexdigest()[:12]
    return f"{datetime.fromtimestamp(at, UTC):%Y%m%d_%H%M%S}_{digest}"


def _title(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= 80 else f"{words[:79]}…"
