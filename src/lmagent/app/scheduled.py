"""Scheduled: one job is done, in its session. Whatever it finds there from an earlier attempt, it goes on from.

What a job is about, its id says; whether it was taken in, begun or ended, the session's log says. So a job that is
delivered twice runs once.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from functools import partial

from msgspec import Struct

from lmagent.app.entitled import entitle
from lmagent.app.host import Host
from lmagent.app.places import Place, is_there, own_place
from lmagent.app.waking import wake
from lmagent.core import events as ev
from lmagent.core.commands import Submit
from lmagent.core.errors import ProviderError, SessionBusy, StoreError
from lmagent.core.messages import user
from lmagent.core.ports import DispatchJob, Postponed
from lmagent.engine.session import Session
from lmagent.engine.waits import local
from lmagent.schedule.inbox import Inbox
from lmagent.schedule.jobs import CronJob, read_jobs
from lmagent.schedule.ledger import CronRun, JobHistory, What
from lmagent.schedule.rights import NO_RIGHTS, taken_apart
from lmagent.store.index import SessionIndex
from lmagent.store.jsonl import JsonlStore

BUSY = 1.0
"""Seconds after which a session that somebody else has open is tried again."""

OUTAGE = (2.0, 5.0, 15.0, 60.0, 300.0)
"""Seconds after which a turn is gone on with for which no model server could be reached; the last one repeats."""

KINDS = ("wait", "inbox", "cron")
"""What jobs of a scheduler begin with; others are not its own."""

GIVE_UP = 86400.0
"""Seconds for which that is tried, from when the work was given on; then the turn ends as an error."""

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
        """What wakes it."""
        return DispatchJob(f"wait:{self.event}", self.session, self.until)


class Scheduled:
    """Does jobs.

    Args:
        host: the sessions.
        inbox: the tasks that were submitted.
        history: what is known of a cron job, as it stands in the ledger now.
        note: writes into the ledger.
        waits: told of a session that a turn has left waiting.
        say: shows a person what happens.
        patient: work that cannot be done now, for want of a model server or while a file is being rewritten, waits,
            and what the end of this program cuts off is gone on with; a person who stops it means it.
    """

    def __init__(
        self,
        host: Host,
        inbox: Inbox,
        history: Callable[[str], Awaitable[JobHistory]],
        note: Note,
        waits: Callable[[Waits], Awaitable[None]],
        say: Say,
        *,
        patient: bool,
    ) -> None:
        self._host = host
        self._inbox = inbox
        self._history = history
        self._note = note
        self._waits = waits
        self._say = say
        self._patient = patient
        self._told_busy: set[str] = set()
        self._outages: dict[str, int] = {}

    async def do(self, job: DispatchJob) -> None:
        """Do a job, as far as it is not done.

        Raises:
            Postponed: somebody else has its session open, or no model server can be reached.
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
        if not is_there(self._host, job.lane):
            return
        try:
            async with self._opened(job.lane) as place:
                session = place.session
                wait = session.state.wait
                if job.id not in session.state.work.jobs:
                    if wait is None or wait.id != event or not await wake(session, self._host.clock):
                        return  # somebody went on with it meanwhile
                    self._say(f"{job.lane}: wakes, as it wanted")
                await self._to_its_end(place, job.id)
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
        async with self._opened(claimed.session) as place:
            await entitle(place.session, rights, "inbox")
            if job.id not in place.session.state.work.jobs:
                await place.session.send(Submit(message=user(text), by="inbox", job=job.id))
                self._say(f"{claimed.session}: begins a task of the inbox: {_title(text)}")
            await self._to_its_end(place, job.id)
            self._inbox.done(claimed)  # a session that is free can be deleted: then nothing else says so

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
                raise Postponed(BUSY)  # its file may just be written anew; where it is gone for good, it is put off
            self._say(f"cron {name}: is in no file any more, so it does not run")
            await self._note(name, "ran", run.at, "", "removed")
            return
        if run.stage != "claimed" and not self.has(target, job.id):
            return  # it was taken back before it began, or its session was deleted
        async with self._opened(target, f"cron {name}") as place:
            finished = await self._cron_turn(place, job, cron, run)
            if run.stage == "claimed":
                await self._note(name, "ran", run.at, target, finished.ending if finished else "withdrawn")
        if finished is not None and cron is not None and (cron.command or cron.webhook):
            await self._deliver(cron, job, run, finished, target)  # may take minutes: the session is free for others

    async def _cron_turn(
        self, place: Place, job: DispatchJob, cron: CronJob | None, run: CronRun
    ) -> ev.TurnFinished | None:
        session = place.session
        if cron is not None:
            await entitle(session, cron.rights, f"cron:{cron.id}")
        if job.id not in session.state.work.jobs:
            assert cron is not None
            await session.send(Submit(message=user(cron.prompt), by=f"cron:{cron.id}", job=job.id))
            self._say(f"cron {cron.id}: due {local(run.at)}, runs in {session.state.session}")
        return await self._to_its_end(place, job.id)

    async def _deliver(
        self, cron: CronJob, job: DispatchJob, run: CronRun, finished: ev.TurnFinished, session: str
    ) -> None:
        from lmagent.app.delivering import Result, deliver  # few jobs deliver

        again = run.stage == "delivering"
        if not again:
            await self._note(cron.id, "delivering", run.at, "", "")
        result = Result(cron.id, job.id, run.at, session, finished.ending, finished.reason, finished.answer)
        came = await deliver(self._host, cron, result, again=again)
        await self._note(cron.id, "delivered", run.at, "", came)
        self._say(f"cron {cron.id}: result delivered: {came}")

    # --- sessions ---------------------------------------------------------------------------------------------------

    async def _to_its_end(self, place: Place, job: str) -> ev.TurnFinished | None:
        """Run the job's turn, or go on with it, unless it has ended; how it ended, None where it never began."""
        session = place.session
        found = turn_of(self._host.store, session.state.session, job)
        if not isinstance(found, ev.TurnFinished):
            await self._run(place, job, left=found == "open")
            found = turn_of(self._host.store, session.state.session, job)
            if isinstance(found, ev.TurnFinished):
                reason = f": {found.reason}" if found.reason else ""
                self._say(f"{session.state.session}: {found.ending}{reason}")
        wait = session.state.wait
        if wait is not None:
            await self._waits(Waits(session.state.session, wait.id, wait.until))
        return found if isinstance(found, ev.TurnFinished) else None

    async def _run(self, place: Place, job: str, *, left: bool) -> None:
        """Run what is open or was submitted.

        Raises:
            Postponed: no model server can be reached; the turn stays open.
        """
        session = place.session
        try:
            await place.run(job, left=left, until=self._given(session, job) + GIVE_UP if self._patient else 0.0)
        except ProviderError as failure:
            tried = self._outages.get(job, 0)
            self._outages[job] = tried + 1
            pause = OUTAGE[min(tried, len(OUTAGE) - 1)]
            self._say(f"{session.state.session}: {failure.message}; goes on in {pause:g} s at the earliest")
            raise Postponed(pause) from None
        self._outages.pop(job, None)

    def _given(self, session: Session, job: str) -> float:
        """When the work of a job was given, Unix seconds."""
        events = self._host.store.read(session.state.session)
        return next((event.ts for event in events if isinstance(event, ev.InputReceived) and event.job == job), 0.0)

    @asynccontextmanager
    async def _opened(self, id: str, who: str = "") -> AsyncGenerator[Place]:
        """The place in a session, which is begun where there is none of that id; left again, whatever happens.

        Args:
            id: the session's id.
            who: what a person is told to wait where somebody else has it open; empty to tell nothing.

        Raises:
            Postponed: somebody else has it open.
        """
        async with AsyncExitStack() as stack:
            places = self._host.places or partial(own_place, self._host, patient=self._patient)
            try:
                place = await stack.enter_async_context(places(id))
            except SessionBusy:
                raise self._busy(id, who) from None
            self._told_busy.discard(who)
            yield place

    def _busy(self, id: str, who: str) -> Postponed:
        if who and who not in self._told_busy:
            self._told_busy.add(who)
            self._say(f"{who}: waits until session {id} is closed, which is open elsewhere")
        return Postponed(BUSY)

    def has(self, session: str, job: str) -> bool:
        """Whether a session's log has the input of a job."""
        return is_there(self._host, session) and any(
            isinstance(event, ev.InputReceived) and event.job == job for event in self._host.store.read(session)
        )

    def _still_waits(self, job: DispatchJob) -> bool:
        with SessionIndex(self._host.store.root) as index:
            index.refresh()
            rows = index.unattended()
        return any(row.session == job.lane and (f"wait:{row.ended}" == job.id or row.job == job.id) for row in rows)


def turn_of(store: JsonlStore, session: str, job: str) -> ev.TurnFinished | str:
    """How the turn of a job ended; "open" while it has not, and empty before it began."""
    input, turn, begun = "", 0, 0
    for event in store.read(session):
        match event:
            case ev.InputReceived() if event.job == job:
                input = event.id
            case ev.TurnStarted() if input and not turn:
                begun = event.turn
            case ev.MessageAdded() if input and event.input == input:
                turn = event.turn
            case ev.TurnFinished() if turn and event.turn == turn:
                return event
            case ev.TurnFinished() if event.turn == begun:
                begun = 0
            case _:
                pass
    return "open" if turn or begun else ""


def occurrence_session(job: str, at: int) -> str:
    """The id of the session in which a cron job runs at a time: always the same, so that a repeat finds it."""
    digest = hashlib.sha256(f"cron:{job}:{at}".encode()).hexdigest()[:12]
    return f"{datetime.fromtimestamp(at, UTC):%Y%m%d_%H%M%S}_{digest}"


def _title(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= 80 else f"{words[:79]}…"
