"""Desk: a session that is open here for writing, and the lane that works on it."""

from __future__ import annotations

from collections.abc import Callable

import anyio
import anyio.abc

from lmagent.app.host import Host
from lmagent.app.logs import unexpected
from lmagent.app.waking import wake_in_time
from lmagent.core.commands import Interrupt
from lmagent.core.errors import LmagentError
from lmagent.core.events import BY_USER, Event, InputReceived, InputWithdrawn, TurnFinished
from lmagent.core.ports import UNATTENDED, WAKING
from lmagent.engine.lane import run_until_idle
from lmagent.engine.outage import PATIENCE, be_patient
from lmagent.engine.recovery import close_turn
from lmagent.engine.session import Session

ENDING = 20.0
"""Seconds within which a turn that is interrupted has ended, if its tools let go."""

REMEMBERED = 256
"""Inputs of which a desk remembers the id under which they were sent."""


class Desk:
    """One session at work.

    Args:
        session: the session.
        host: whose it is.
        tasks: where it works.
        say: shows a person what goes wrong.

    Attributes:
        opened_at: when it was opened, Unix seconds.
        used_at: when something was last wanted of it, by the monotonic clock.
        is_opening: what was left in it is being looked at.
        is_closing: it is about to be released.
        inputs: what was sent here, by the id that the sender gave it.
        jobs: how many jobs of the scheduler have their place here.
        failure: what has ended the lane, if anything has.
    """

    def __init__(self, session: Session, host: Host, tasks: anyio.abc.TaskGroup, say: Callable[[str], None]) -> None:
        self.session = session
        self.opened_at = host.clock.now()
        self.used_at = host.clock.monotonic()
        self._has_failed = False
        self.is_opening = False
        self.is_closing = False
        self.inputs: dict[str, InputReceived] = {}
        self.jobs = 0
        self.failure: LmagentError | None = None
        self._host = host
        self._tasks = tasks
        self._say = say
        self._scope = anyio.CancelScope()
        self._is_working = False
        self._is_asleep = False
        self._is_left = False
        self._idle = anyio.Event()
        self._moved = anyio.Event()
        self._last: TurnFinished | None = None
        session.listen(self._listen)

    @property
    def id(self) -> str:
        """The session's id."""
        return self.session.state.session

    @property
    def is_working(self) -> bool:
        """Whether its lane runs."""
        return self._is_working

    @property
    def has_failed(self) -> bool:
        """Whether its log takes nothing more, or we are at fault: it must be opened anew."""
        return self._has_failed or self.session.has_failed

    def fail(self) -> None:
        """It must be opened anew."""
        self._has_failed = True

    @property
    def is_well(self) -> bool:
        """Whether it can be used."""
        return not (self.is_opening or self.is_closing) and (self._is_working or not self.has_failed)

    @property
    def is_needed(self) -> bool:
        """Whether something is going on that would be lost, or cut off, if it were released."""
        session = self.session
        if self._is_working or self.jobs or session.state.inputs:
            return True
        return self._host.registry.is_busy(self.id)

    def touch(self) -> None:
        """Something is wanted of it."""
        self.used_at = self._host.clock.monotonic()

    def remember(self, id: str, event: InputReceived) -> None:
        """Keep under which id an input was sent."""
        self.inputs[id] = event
        if len(self.inputs) > REMEMBERED:
            self.inputs.pop(next(iter(self.inputs)))

    # --- working ----------------------------------------------------------------------------------------------------

    def work(self) -> None:
        """Do what was submitted, if nobody is at it yet."""
        self.touch()
        if not (self._is_working or self._is_left):
            self._is_working = True
            self._idle = anyio.Event()
            self._tasks.start_soon(self._run)

    async def until_idle(self) -> TurnFinished | None:
        """Wait until there is nothing to do; how the last turn ended that ran here."""
        while self._is_working:
            await self._idle.wait()
        return self._last

    async def until(self, holds: Callable[[], bool]) -> bool:
        """Wait until something holds, which is looked at when a turn ends; False where the lane stands before that."""
        while not holds():
            if not self._is_working:
                return False
            await self._moved.wait()
        return True

    async def until_free(self) -> None:
        """Wait until no job has its place here."""
        while self.jobs:
            await self._moved.wait()

    def tell(self) -> None:
        """Let those look who wait for something here."""
        self._moved.set()
        self._moved = anyio.Event()

    def _listen(self, event: Event) -> None:
        if isinstance(event, TurnFinished | InputWithdrawn):
            self.tell()

    async def interrupt(self, command: Interrupt) -> TurnFinished | None:
        """Stop the running turn; how it ended, on disk, so that nobody goes on with it. None where none runs."""
        if (left := await self.close_left()) is not None:
            return left
        ended: list[TurnFinished] = []
        news = anyio.Event()

        def listen(event: Event) -> None:
            if isinstance(event, TurnFinished):
                ended.append(event)
                news.set()

        unlisten = self.session.listen(listen)
        try:
            await self.session.send(command)
            with anyio.move_on_after(ENDING if self.session.running else 0):
                await news.wait()
        finally:
            unlisten()
        return ended[0] if ended else None

    async def close_left(self) -> TurnFinished | None:
        """End a turn that is open in the log and at which nobody works; how it ended. None where there is none."""
        if self._is_working or not self.session.state.turn_open:
            return None
        return await close_turn(self.session, "interrupt", BY_USER)

    async def stop(self) -> None:
        """Leave what runs as it is in the log, for somebody to go on with."""
        self._is_left = True
        self._scope.cancel()
        await self.until_idle()

    async def _run(self) -> None:
        try:
            with self._scope:
                await self._lane()
        finally:
            self._is_working = False
            self._scope = anyio.CancelScope()
            self.touch()
            self._idle.set()
            self.tell()
        if self.session.state.waiting("submit", "queue", "steer") and not (self.has_failed or self.session.closed):
            self.work()  # it arrived in the very moment in which the lane went idle
        else:
            self.sleep()

    async def _lane(self) -> None:
        try:
            self._last = await run_until_idle(self.session, resumable=True) or self._last
        except LmagentError as failure:
            self._has_failed, self.failure = True, failure
            self._say(f"session {self.id}: {failure}")
        except Exception as fault:  # noqa: BLE001 - one session's trouble is not the others'
            back = f"lmagent --resume {self.id}"
            self._has_failed, self.failure = True, unexpected(fault, self._host.workspace, self._host.settings, back)
            self._say(f"session {self.id}: {self.failure}")

    def sleep(self) -> None:
        """See to it that a session that waits is woken at its time; what waits for a job, the scheduler wakes."""
        if self.session.state.job.startswith(UNATTENDED):
            return
        if self.session.state.wait is not None and not (self._is_asleep or self._is_left):
            self._is_asleep = True
            self._tasks.start_soon(self._wake)

    async def _wake(self) -> None:
        try:
            woken = await wake_in_time(self.session, self._host.clock)
        except LmagentError as failure:
            self._has_failed, woken = True, False
            self._say(f"session {self.id}: {failure}")
        finally:
            self._is_asleep = False
        if woken:
            be_patient(self.session, WAKING, self._host.clock.now() + PATIENCE)
            self.work()
