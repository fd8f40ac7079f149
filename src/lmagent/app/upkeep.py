"""A runner's own work: it continues work that was left, releases idle sessions and denies overdue approvals."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread

from lmagent.app.open_session import OpenSession
from lmagent.core.commands import Continue
from lmagent.core.errors import LmagentError, SessionBusy, SessionNotFound, StoreError
from lmagent.engine.outage import PATIENCE, be_patient
from lmagent.engine.session import SCHEDULER
from lmagent.schedule.turns import unattended
from lmagent.store.index import Unattended

if TYPE_CHECKING:
    from lmagent.app.runner import Runner

TICK = 0.5  # seconds between two looks at the open sessions
LOOK = 5.0  # seconds between two looks for left work of other processes
LEFT = 10.0  # seconds for which an idle session stays open after its last watcher has gone
IDLE = 120.0  # seconds for which an idle, watched session stays open; then a terminal may open it
REFUSED = 60.0  # seconds after which a session with an unwritable log is tried again
SOON = 60.0  # seconds before its time at which a waiting session is opened


class Upkeep:
    """Looks after the sessions of a runner."""

    def __init__(self, runner: Runner) -> None:
        self.unwatched_at: dict[str, float] = {}
        self._runner = runner
        self._host = runner.host
        self._continued: set[tuple[str, str]] = set()
        self._taken_up: set[tuple[str, int]] = set()
        self._refused: dict[str, float] = {}
        self._scope = anyio.CancelScope()
        self._ended = anyio.Event()
        self._ended.set()

    async def run(self, beside: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._ended = anyio.Event()
        try:
            with self._scope:
                looked = self._host.clock.monotonic()
                await self._look()
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(beside)
                    tasks.start_soon(self._reflect)
                    while True:
                        await anyio.sleep(TICK)
                        await self.tidy()
                        if self._host.clock.monotonic() - looked >= LOOK:
                            looked = self._host.clock.monotonic()
                            await self._look()
        finally:
            self._ended.set()

    async def stop(self) -> None:
        self._scope.cancel()
        await self._ended.wait()

    async def _reflect(self) -> None:
        """Let the model reflect on finished sessions while none is at work."""
        if not self._host.settings.enable_memory:
            return
        from lmagent.app.reflecting import IdleReflection

        reflection, busy_at = IdleReflection(self._host, self._runner.say), self._host.clock.monotonic()
        while True:
            await anyio.sleep(LOOK)
            now = self._host.clock.monotonic()
            if any(known.is_working for known in self._runner.sessions.values()):
                busy_at = now
            await reflection.look(now - busy_at)

    # --- continuing -------------------------------------------------------------------------------------------------

    async def _look(self) -> None:
        """Continue inputs that a dead process accepted, and open sessions that are about to wake."""
        self._forget_refused()
        for row in await self._unattended(free=True):
            if row.session in self._host.sessions or not _from_a_user(row):
                continue
            key = (row.session, row.ended if row.until else str(row.origin))
            due = not row.until or row.until - self._host.clock.now() < SOON
            if due and key not in self._continued and await self._continue(row.session):
                self._continued.add(key)

    async def _unattended(self, *, free: bool = False) -> list[Unattended]:
        try:
            return await anyio.to_thread.run_sync(partial(unattended, self._host.store, free=free))
        except LmagentError as trouble:
            self._runner.say(str(trouble))
            return []

    async def _continue(self, session: str) -> bool:
        """Continue a session's accepted inputs; return False to try again later, since another process has it open."""
        try:
            known = await self._runner.open(session)
        except SessionNotFound:
            return True
        except SessionBusy:
            return False
        except Exception as failure:  # noqa: BLE001 - the failure of one session must not end the others
            if isinstance(failure, StoreError):
                self._refused[session] = self._host.clock.monotonic()
            if not isinstance(failure, LmagentError):
                failure = self._runner.unexpected(failure, f"lmagent --resume {session}")
            self._runner.say(f"session {session} is not resumed: {failure}")
            return True
        if known.is_needed or known.session.state.turn_open or known.session.state.wait is not None:
            known.work()
        else:  # the process that had it has finished, and may want it again
            used = known.used_at
            await self._runner.release(session, unless=lambda it: it is not known or it.is_needed or it.used_at != used)
        return True

    def _forget_refused(self) -> None:
        """Let sessions with a full disk be continued again: it may have room by now."""
        now = self._host.clock.monotonic()
        for session in [session for session, at in self._refused.items() if now - at >= REFUSED]:
            del self._refused[session]
            self._continued = {key for key in self._continued if key[0] != session}
            self._taken_up = {turn for turn in self._taken_up if turn[0] != session}

    async def take_up(self, known: OpenSession) -> None:
        """Continue inputs that a dead process accepted in a session that was just opened.

        Each turn once: it may have been the cause of that process's death. All turns wait for the model server: the
        session may be unattended, and the server may start later than this program.
        """
        state = known.session.state
        if not (state.turn_open or state.inputs) or not await self._is_left(known.id):
            return
        until = self._host.clock.now() + PATIENCE
        open_turn = (state.origin,) if state.turn_open else ()
        for origin in (*open_turn, *(input.origin for input in state.inputs.values())):
            be_patient(known.session, origin, until)
        turn = (known.id, state.turn)
        if state.turn_open and turn not in self._taken_up:
            by = self._runner.surface if state.origin.is_attended else SCHEDULER
            await known.session.send(Continue(by=by))
            self._taken_up.add(turn)
        known.work()

    async def _is_left(self, session: str) -> bool:
        return any(
            row.session == session
            and not row.until
            and (_from_a_user(row) or row.origin.kind in ("cron", "inbox", "wait"))
            for row in await self._unattended()
        )

    # --- tidying ----------------------------------------------------------------------------------------------------

    async def tidy(self) -> None:
        for known in list(self._runner.sessions.values()):
            try:
                await known.wake_if_due()
                by = f"{self._runner.surface}:timeout"
                await known.deny_overdue_approvals(self._host.settings.approval_timeout, by)
                if self._may_be_released(known):
                    if known.session.has_failed:
                        self._refused[known.id] = self._host.clock.monotonic()
                    await self._runner.release(known.id, unless=lambda it: not self._may_be_released(it))
                    self.unwatched_at.pop(known.id, None)
            except LmagentError as trouble:
                known.fail()
                self._runner.say(f"session {known.id}: {trouble}")

    def _may_be_released(self, known: OpenSession) -> bool:
        now, state = self._host.clock.monotonic(), known.session.state
        if known.has_failed:
            return not known.is_working
        waits = state.wait is not None and state.wait.until - self._host.clock.now() < 2 * SOON
        if known.is_needed or waits:
            return False
        if self._runner.is_watched(known.id):
            return state.work.proposal is None and now - known.used_at >= IDLE
        return now - max(known.used_at, self.unwatched_at.get(known.id, 0.0)) >= LEFT


def _from_a_user(row: Unattended) -> bool:
    return row.origin.kind in ("web", "api") or (row.origin.kind == "plan" and row.surface == "web")
