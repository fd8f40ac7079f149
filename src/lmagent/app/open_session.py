"""A session that is open in this process: its log is locked for writing, and its turns run one after the other."""

from __future__ import annotations

from collections.abc import Callable

import anyio
import anyio.abc

from lmagent.app.host import Host
from lmagent.app.logs import unexpected
from lmagent.cluster import without_blocking
from lmagent.core import events as ev
from lmagent.core.commands import Approve, Continue, Interrupt
from lmagent.core.errors import LmagentError
from lmagent.core.ids import InputOrigin
from lmagent.core.ports import Postponed
from lmagent.engine.lane import run_until_idle
from lmagent.engine.outage import PATIENCE, be_patient
from lmagent.engine.recovery import close_turn
from lmagent.engine.session import SCHEDULER, Session
from lmagent.schedule.turns import turn_of, wake

ENDING = 20.0  # seconds within which an interrupted turn ends, if its tools let go
AGAIN = 1.0  # seconds after which a job is tried again whose session was closed before its turn could begin


class OpenSession:
    """One session at work.

    If it is `resumable`, the next process resumes a turn that the end of this program cuts off; otherwise the turn
    ends as interrupted.
    """

    def __init__(
        self,
        session: Session,
        host: Host,
        tasks: anyio.abc.TaskGroup,
        say: Callable[[str], None],
        *,
        resumable: bool = True,
    ) -> None:
        self.session = session
        self.opened_at = host.clock.now()  # Unix seconds at which it was opened
        self.used_at = host.clock.monotonic()  # monotonic seconds at which a client last asked for it
        self.is_opening = False  # the runner is still looking at work that an earlier process left in it
        self.is_closing = False
        self.jobs = 0  # the number of scheduled jobs that work in it or wait for their turn
        self.failure: LmagentError | None = None
        self._host = host
        self._tasks = tasks
        self._say = say
        self._resumable = resumable
        self._has_failed = False
        self._scope = anyio.CancelScope()
        self.is_working = False
        self._is_stopped = False
        self._idle = anyio.Event()
        self._moved = anyio.Event()
        self._last: ev.TurnFinished | None = None
        session.listen(self._listen)

    @property
    def id(self) -> str:
        return self.session.state.session

    @property
    def has_failed(self) -> bool:
        """Whether it must be opened again: its log takes no more events, or a defect ended its work."""
        return self._has_failed or self.session.has_failed

    def fail(self) -> None:
        self._has_failed = True

    @property
    def is_usable(self) -> bool:
        return not (self.is_opening or self.is_closing) and (self.is_working or not self.has_failed)

    @property
    def is_needed(self) -> bool:
        """Whether releasing it now would lose or cut off work."""
        if self.is_working or self.jobs or self.session.state.inputs:
            return True
        return self._host.registry.is_busy(self.id)

    def touch(self) -> None:
        self.used_at = self._host.clock.monotonic()

    # --- working ----------------------------------------------------------------------------------------------------

    def work(self) -> None:
        self.touch()
        if not (self.is_working or self._is_stopped):
            self.is_working = True
            self._idle = anyio.Event()
            self._tasks.start_soon(self._run)

    async def until_idle(self) -> ev.TurnFinished | None:
        """Wait until no turn is left to run; return how the last turn ended that ran here."""
        while self.is_working:
            await self._idle.wait()
        return self._last

    async def until_no_job(self) -> None:
        while self.jobs:
            await self._moved.wait()

    async def interrupt(self, command: Interrupt) -> ev.TurnFinished | None:
        """End the running turn for good; return its end, which is on disk then, or None if no turn runs."""
        if (left := await self.close_left()) is not None:
            return left
        before = self._last
        await self.session.send(command)
        with anyio.move_on_after(ENDING if self.session.running else 0):
            while self._last is before:
                await self._moved.wait()
        return self._last if self._last is not before else None

    async def close_left(self) -> ev.TurnFinished | None:
        """End a turn that is open in the log although nothing works on it; return its end."""
        if self.is_working or not self.session.state.turn_open:
            return None
        return await close_turn(self.session, "interrupt", ev.BY_USER)

    async def stop(self) -> None:
        """Stop working. If the session is resumable, the turn that runs stays open for the next process."""
        self._is_stopped = True
        self._scope.cancel()
        await self.until_idle()

    async def deny_overdue_approvals(self, timeout: float, by: str) -> None:
        """Deny the approvals, of its sub-agents too, that are unanswered after `timeout` seconds."""
        for session in _family(self.session):
            for request in list(session.state.approvals.values()):
                if self._host.clock.now() - max(request.ts, self.opened_at) >= timeout:
                    reason = f"no answer within {timeout:g} seconds"
                    await self.session.send(Approve(approval=request.id, approved=False, feedback=reason, by=by))

    async def _run(self) -> None:
        try:
            with self._scope:
                await self._run_turns()
        finally:
            self.is_working = False
            self._scope = anyio.CancelScope()
            self.touch()
            self._idle.set()
            self.wake_waiters()
        if self.session.state.waiting("submit", "queue", "steer") and not (self.has_failed or self.session.closed):
            self.work()  # the input arrived at the moment in which the last turn ended

    async def _run_turns(self) -> None:
        try:
            await run_until_idle(self.session, resumable=self._resumable)
        except Exception as fault:  # noqa: BLE001 - the failure of one session must not end the others
            self._has_failed, self.failure = True, fault if isinstance(fault, LmagentError) else None
            if self.failure is None:
                host, back = self._host, f"lmagent --resume {self.id}"
                self.failure = unexpected(fault, host.workspace, host.settings, back)
            self._say(f"session {self.id}: {self.failure}")

    # --- jobs -------------------------------------------------------------------------------------------------------

    async def run_job(self, origin: InputOrigin, *, is_open: bool, patient_until: float) -> None:
        """See `lmagent.schedule.port.JobSession`."""
        if patient_until:
            be_patient(self.session, origin, patient_until)
        if is_open and not self.session.running:
            await self.session.send(Continue(by=SCHEDULER))
        self.work()
        while True:
            moved, is_working = self._moved, self.is_working  # before the look, during which the turn may end
            if await self._is_over(origin):
                return
            if not is_working:
                raise self.failure or Postponed(AGAIN)
            await moved.wait()

    async def _is_over(self, origin: InputOrigin) -> bool:
        if any(input.origin == origin for input in self.session.state.inputs.values()):
            return False
        host = self._host
        return await without_blocking(host.settings, lambda: turn_of(host.store, self.id, origin)) != "open"

    def wake_waiters(self) -> None:
        """Wake the tasks that wait for a job or for a free session, so that they look again."""
        self._moved.set()
        self._moved = anyio.Event()

    def _listen(self, event: ev.Event) -> None:
        if isinstance(event, ev.TurnFinished):
            self._last = event
        if isinstance(event, ev.TurnFinished | ev.InputWithdrawn):
            self.wake_waiters()

    # --- waiting for a time -----------------------------------------------------------------------------------------

    async def wake_if_due(self) -> None:
        """Continue the session if the time has come that it waits for; the scheduler wakes sessions of jobs."""
        state, now = self.session.state, self._host.clock.now()
        if self.is_working or not state.origin.is_attended or state.wait is None or state.wait.until > now:
            return
        if await wake(self.session, self._host.clock):
            be_patient(self.session, state.origin, now + PATIENCE)
            self.work()


def _family(session: Session) -> list[Session]:
    return [session, *(member for child in list(session.children.values()) for member in _family(child))]
