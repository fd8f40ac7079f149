"""Keeping: what a hub does without being asked: going on with what was accepted, releasing what is idle, giving up on
approvals that nobody answers, and what is due in the workspace."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from lmagent.app.logs import unexpected
from lmagent.core.commands import Approve, Continue
from lmagent.core.errors import LmagentError, SessionBusy, SessionNotFound, StoreError, ungrouped
from lmagent.core.ports import UNATTENDED, WAKING
from lmagent.engine.outage import PATIENCE, be_patient
from lmagent.engine.session import SCHEDULER, Session
from lmagent.gateway.hub.desk import Desk
from lmagent.gateway.hub.sent import BY
from lmagent.store.index import SessionIndex, Unattended
from lmagent.store.tally import PAGE

if TYPE_CHECKING:
    from lmagent.gateway.hub.hub import Hub

TICK = 1.0
"""Seconds between two looks at what is open here."""

LOOK = 5.0
"""Seconds between two looks for work that another process has left."""

LEFT = 10.0
"""Seconds after its last watcher has gone for which an idle session stays open."""

IDLE = 120.0
"""Seconds for which an idle session stays open that somebody watches; then a terminal may have it."""

REFUSED = 60.0
"""Seconds after which what a disk has refused to record is gone on with, as if nobody had tried yet."""

SOON = 60.0
"""Seconds before its time for which a session that waits is opened."""


class Keeper:
    """Keeps a hub's sessions.

    Args:
        hub: the hub.
    """

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._host = hub.host
        self._left_at: dict[str, float] = {}
        self._gone_on: set[tuple[str, str]] = set()
        self._taken_up: set[tuple[str, int]] = set()
        self._refused: dict[str, float] = {}
        self._told: set[str] = set()
        self._scope = anyio.CancelScope()
        self._ended = anyio.Event()
        self._ended.set()

    async def run(self) -> None:
        """Keep them until stopped."""
        self._ended = anyio.Event()
        try:
            with self._scope:
                await self._keep()
        finally:
            self._ended.set()

    async def stop(self) -> None:
        """Do nothing more without being asked."""
        self._scope.cancel()
        await self._ended.wait()

    async def _keep(self) -> None:
        looked = self._host.clock.monotonic()
        await self._look()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._schedule)
            while True:
                await anyio.sleep(TICK)
                await self.tidy()
                if self._host.clock.monotonic() - looked >= LOOK:
                    looked = self._host.clock.monotonic()
                    await self._look()

    def left(self, session: str) -> None:
        """A watcher of a session has gone."""
        self._left_at[session] = self._host.clock.monotonic()
        self._hub.forget(session)

    # --- going on ---------------------------------------------------------------------------------------------------

    async def _look(self) -> None:
        """Go on with what was accepted by a process that is not there any more, and open what is about to wake."""
        try:
            rows = await anyio.to_thread.run_sync(_unattended, self._host.store.root)
        except LmagentError as trouble:
            self._hub.say(str(trouble))
            return
        self._forget_refused()
        for row in rows:
            if row.session in self._host.sessions or not _is_ours(row):
                continue
            key = (row.session, row.ended if row.until else row.job)
            due = not row.until or row.until - self._host.clock.now() < SOON
            if due and key not in self._gone_on and await self._go_on(row.session):
                self._gone_on.add(key)

    async def _go_on(self, session: str) -> bool:
        """Go on with what was accepted for a session; False where somebody else has it open, to be tried again."""
        try:
            desk = await self._hub.desk(session)
        except SessionNotFound:
            return True
        except SessionBusy:
            return False
        except Exception as failure:  # noqa: BLE001 - one session's trouble is not the others'
            if isinstance(failure, StoreError):
                self._refused[session] = self._host.clock.monotonic()
            if not isinstance(failure, LmagentError):
                failure = unexpected(failure, self._host.workspace, self._host.settings, f"lmagent --resume {session}")
            if (text := f"session {session} is not resumed: {failure}") not in self._told:
                self._told.add(text)
                self._hub.say(text)
            return True
        if desk.is_needed or desk.session.state.turn_open or desk.session.state.wait is not None:
            desk.work()
        else:  # whoever had it has done it meanwhile, and may want it again
            used = desk.used_at
            await self._hub.release(session, fits=lambda it: it is desk and not it.is_needed and it.used_at == used)
        return True

    def _forget_refused(self) -> None:
        """A disk that was full has room some time later, and what was accepted is not to wait for a restart then."""
        now = self._host.clock.monotonic()
        again = {session for session, at in self._refused.items() if now - at >= REFUSED}
        if again:
            self._refused = {session: at for session, at in self._refused.items() if session not in again}
            self._gone_on = {key for key in self._gone_on if key[0] not in again}
            self._taken_up = {turn for turn in self._taken_up if turn[0] not in again}

    async def take_up(self, desk: Desk) -> None:
        """Go on with what a gateway has accepted and left in a session that was opened now, before all that comes next.

        A turn once: it may be what that gateway died of. Nobody may sit in front of any of it any more, and the model
        server may come up later than we do, so all of it waits for that.
        """
        state = desk.session.state
        if not (state.turn_open or state.inputs) or not await self._is_left(desk.id):
            return
        until = self._host.clock.now() + PATIENCE
        mine = (state.job,) if state.turn_open else ()
        for job in (*mine, *(input.job for input in state.inputs.values())):
            be_patient(desk.session, job, until)
        turn = (desk.id, state.turn)
        if state.turn_open and turn not in self._taken_up:
            by = SCHEDULER if state.job.startswith(UNATTENDED) else BY
            await desk.session.send(Continue(by=by))
            self._taken_up.add(turn)
        desk.work()

    async def _is_left(self, session: str) -> bool:
        try:
            rows = await anyio.to_thread.run_sync(_unattended, self._host.store.root)
        except LmagentError as trouble:
            self._hub.say(str(trouble))
            return False
        return any(row.session == session and not row.until and (_is_ours(row) or _is_job(row)) for row in rows)

    async def _schedule(self) -> None:
        from lmagent.app.scheduling import Scheduler  # not needed before the first answer

        try:
            with ungrouped():
                await Scheduler(self._host, self._hub.say, startup=True).run()
        except LmagentError as error:
            self._hub.say(f"the scheduler of this gateway has stopped: {error}")

    # --- tidying ----------------------------------------------------------------------------------------------------

    async def tidy(self) -> None:
        """Release what is idle, and give up on approvals that nobody answers."""
        for desk in list(self._hub.desks.values()):
            try:
                await self._give_up_approvals(desk)
                if self._may_go(desk):
                    if desk.session.has_failed:
                        self._refused[desk.id] = self._host.clock.monotonic()
                    await self._hub.release(desk.id, fits=self._may_go)
                    self._left_at.pop(desk.id, None)
            except LmagentError as trouble:
                desk.fail()
                self._hub.say(f"session {desk.id}: {trouble}")

    def _may_go(self, desk: Desk) -> bool:
        now, state = self._host.clock.monotonic(), desk.session.state
        if desk.has_failed:
            return not desk.is_working
        waits = state.wait is not None and state.wait.until - self._host.clock.now() < 2 * SOON
        if desk.is_needed or waits:
            return False
        if self._hub.channel(desk.id).fan.watchers:
            return state.work.proposal is None and now - desk.used_at >= IDLE
        return now - max(desk.used_at, self._left_at.get(desk.id, 0.0)) >= LEFT

    async def _give_up_approvals(self, desk: Desk) -> None:
        """Deny what has waited for an answer for too long."""
        patience = self._host.settings.approval_timeout
        for session in _family(desk.session):
            for request in list(session.state.approvals.values()):
                if self._host.clock.now() - max(request.ts, desk.opened_at) < patience:
                    continue
                words = f"nobody answered within {patience:g} seconds"
                denial = Approve(approval=request.id, approved=False, feedback=words, by=f"{BY}:timeout")
                await desk.session.send(denial)


def _family(session: Session) -> Iterator[Session]:
    """A session and its sub-agents at work."""
    yield session
    for child in list(session.children.values()):
        yield from _family(child)


def _is_ours(row: Unattended) -> bool:
    """Whether it came in through a gateway: an input, or the approval of a plan."""
    return row.job.startswith(PAGE) or (row.job.startswith("plan-") and row.surface == BY)


def _is_job(row: Unattended) -> bool:
    """Whether the scheduler has begun it, or what it wakes."""
    return row.job.startswith((*UNATTENDED, WAKING))


def _unattended(root: Path) -> list[Unattended]:
    with SessionIndex(root) as index:
        index.refresh()
        return index.unattended()
