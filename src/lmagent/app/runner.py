"""Runs the sessions of a workspace in this process: opens, continues and releases them, and takes what clients send.

A session is opened when a client needs it, and released when it is idle, so that another process can open it. An input
is on disk before it is answered; if this process dies, the next runner continues its turn.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager, nullcontext
from typing import Any
from weakref import WeakValueDictionary

import anyio
import anyio.abc
import anyio.to_thread
import msgspec
from msgspec import Struct

from lmagent.app.host import Host
from lmagent.app.logs import unexpected
from lmagent.app.open_session import OpenSession
from lmagent.app.records import WorkspaceRecords
from lmagent.app.upkeep import Upkeep
from lmagent.cluster import without_blocking
from lmagent.core.commands import Approve, Close, Command, Continue, DecidePlan, Interrupt, Steer, Submit, Withdraw
from lmagent.core.errors import (
    ConfigError,
    LmagentError,
    SessionBusy,
    SessionNotFound,
    ShuttingDown,
    ungrouped,
)
from lmagent.core.events import DurableEvent, InputReceived
from lmagent.core.ids import InputOrigin, is_session_id, new_id
from lmagent.core.messages import Message
from lmagent.core.work import Way
from lmagent.engine.session import SCHEDULER, Session
from lmagent.schedule.turns import input_of

BEGINS_WORK = (Submit, Steer, Continue, DecidePlan)  # commands after which a session may have a turn to run

_ID = re.compile(r"[A-Za-z0-9._:-]{1,64}")
_BUSY = "it is free when that has ended; interrupt it, or steer it"


class Stopped(Struct, frozen=True):
    """The end of a turn, on disk, if a turn ran; and the waiting messages that were withdrawn."""

    ended: DurableEvent | None
    withdrawn: tuple[InputReceived, ...] = ()


class Runner:
    """The sessions that this process works on.

    Attributes:
        is_watched: tells whether a client watches a session. Such a session stays open longer.
    """

    def __init__(
        self,
        host: Host,
        say: Callable[[str], None],
        *,
        surface: str = SCHEDULER,
        attended: bool = False,
        resumable: bool = True,
    ) -> None:
        self.host = host
        self.say = say
        self.sessions: dict[str, OpenSession] = {}
        self.opened = anyio.Event()
        self.is_watched: Callable[[str], bool] = lambda session: False
        self.deleted: Callable[[str], None] = lambda session: None
        self.surface = surface
        self._attended = attended
        self._resumable = resumable
        self._locks: WeakValueDictionary[str, anyio.Lock] = WeakValueDictionary()
        self._being_deleted: set[str] = set()
        self._tasks: anyio.abc.TaskGroup | None = None
        self._runs = anyio.Event()
        self.is_ending = False
        self._upkeep = Upkeep(self)

    # --- running ----------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Run sessions within this context. Turns that run at its end stay open if the runner is resumable."""
        if self._tasks is not None:
            yield  # a scheduler runs in it
            return
        with ungrouped():
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                self._runs.set()
                try:
                    yield
                finally:
                    with anyio.CancelScope(shield=True):
                        await self.end()
                    tasks.cancel_scope.cancel()

    async def run(self, beside: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run sessions until cancelled or ended: continue work that an earlier process left, release idle sessions.

        `beside` runs at the same time, after the left work was continued, and ends before the sessions do.
        """
        async with self.running():
            await self._upkeep.run(beside)

    async def end(self) -> None:
        self.is_ending = True
        await self._upkeep.stop()
        for known in list(self.sessions.values()):
            await known.stop()
            await self.release(known.id)

    def unexpected(self, defect: Exception, back: str = "lmagent sessions") -> LmagentError:
        """Log an error that no caller foresaw; return it for the user, with the command that continues the work."""
        return unexpected(defect, self.host.workspace, self.host.settings, back)

    async def ready(self) -> anyio.abc.TaskGroup:
        """Wait until the runner runs; return its task group. Raise ShuttingDown if it is about to end."""
        await self._runs.wait()
        if self.is_ending:
            raise ShuttingDown("this program is about to end", fix="try again in a moment")
        assert self._tasks is not None
        return self._tasks

    # --- opening and releasing --------------------------------------------------------------------------------------

    async def begin(self, id: str = "", agent: str = "") -> OpenSession:
        """Return a new session of an agent, which is on disk. With an empty id, it gets an id made from the time."""
        tasks = await self.ready()
        async with self.lock(id) if id else nullcontext():  # a session of this id may just be deleted
            if id:
                self.host.store.require_free(id)
            return await self._opened(id, self.host.new_session(id, agent), tasks)

    async def open(self, session: str, *, take_up: bool = True) -> OpenSession:
        """Open a session for writing, if it is not open yet.

        Unless the caller is about to end it, `take_up` the work that an earlier process left in the session.
        """
        tasks = await self.ready()
        if (known := self.usable(session)) is not None:
            known.touch()
            return known
        async with self.lock(session):
            if (known := self.usable(session)) is not None:
                known.touch()
                return known
            await without_blocking(self.host.settings, lambda: self.require(session))
            self.host.store.require_lock(session)
            if session in self.sessions:
                await self.close(self.sessions[session])  # its log takes no more events
            here = self.host.sessions.get(session)
            if here is not None and (here.above is not None or not self._attended):
                raise SessionBusy(f"session {session} is at work here for another session", fix=_BUSY)
            known = await self._opened(session, self.host.open_session(session), tasks)
            known.is_opening = take_up  # other clients wait until the left work was looked at
            if take_up:
                await self._upkeep.take_up(known)
                known.is_opening = False
            return known

    def usable(self, session: str) -> OpenSession | None:
        known = self.sessions.get(session)
        return known if known is not None and known.is_usable else None

    @asynccontextmanager
    async def for_job(self, session: str) -> AsyncGenerator[OpenSession]:
        """Open a session for a scheduled job, or begin it, and release it afterwards unless it is needed."""
        is_there = await without_blocking(self.host.settings, lambda: self.host.store.exists(session))
        known = await (self.open(session) if is_there else self.begin(session))
        known.jobs += 1
        try:
            yield known
        finally:
            known.jobs -= 1
            known.wake_waiters()
            with anyio.CancelScope(shield=True):
                watched = self.is_watched(session)
                await self.release(session, unless=lambda it: it is not known or it.is_needed or watched)

    async def release(self, session: str, *, unless: Callable[[OpenSession], bool] = lambda known: False) -> None:
        """Close a session unless `unless` returns True at that moment; other processes can open it then."""
        async with self.lock(session):
            if session in self.sessions and not unless(self.sessions[session]):
                await self.close(self.sessions[session])

    async def close(self, known: OpenSession) -> None:
        """Close a session. Call it with the session's lock."""
        known.is_closing = True  # a task that needs it now waits, and opens it again
        await known.stop()
        await self.host.release(known.id)
        self.sessions.pop(known.id, None)

    def lock(self, session: str) -> anyio.Lock:
        return self._locks.setdefault(session, anyio.Lock())

    def unwatched(self, session: str) -> None:
        self._upkeep.unwatched_at[session] = self.host.clock.monotonic()

    def require(self, session: str) -> None:
        """Raise SessionNotFound if no session has this id, SessionDamaged if its log cannot be read."""
        if session in self._being_deleted or not is_session_id(session):
            raise SessionNotFound(f"there is no session {session}", fix="GET /api/sessions lists them")
        self.host.store.require_readable(session)

    async def _opened(
        self, session: str, opening: Coroutine[Any, Any, Session], tasks: anyio.abc.TaskGroup
    ) -> OpenSession:
        """Open a session. It denies approvals at once if the runner is not attended."""
        if not self._attended:
            self.host.unattended.add(session)
        try:
            known = OpenSession(await opening, self.host, tasks, self.say, resumable=self._resumable)
        except BaseException:
            self.host.unattended.discard(session)
            raise
        self.sessions[known.id] = known
        opened, self.opened = self.opened, anyio.Event()
        opened.set()
        return known

    # --- commands ---------------------------------------------------------------------------------------------------

    async def send(self, session: str, command: Command) -> DurableEvent | None:
        """Carry out a command; return the event that records it, which is on disk then."""
        if not command.by:
            command = msgspec.structs.replace(command, by=self.surface)
        if (child := self._sub_agent(session)) is not None and isinstance(command, Steer | Interrupt | Approve):
            return await child.send(command)
        ends = isinstance(command, Close) or (isinstance(command, Interrupt) and not command.to)
        was_open = self.usable(session) is not None
        known = await self.open(session, take_up=not ends)
        if isinstance(command, Interrupt) and ends:
            ended = await known.interrupt(command)
            if not was_open:
                await self._upkeep.take_up(known)  # inputs that were accepted after the turn that ended now
            return ended
        if isinstance(command, Close):
            await known.close_left()
        event = await known.session.send(command)
        if isinstance(command, BEGINS_WORK) or known.session.wants_compaction is not None:
            known.work()
        if isinstance(command, Close):
            await known.until_idle()
            await self.release(session)
        return event

    async def submit(
        self,
        session: str,
        message: Message,
        *,
        id: str = "",
        steer: bool = False,
        by: str = "",
        to: str = "",
        way: Way | None = None,
    ) -> InputReceived:
        """Accept an input. Idempotent: the same id returns the event that was recorded the first time.

        Args:
            id: the sender's own id of the input; empty for an input that is never repeated.
            steer: whether it is for the running turn; otherwise it gets a turn of its own.
            to: session id of the sub-agent that a steering input is for; empty for the session itself.
        """
        by, origin = by or self.surface, origin_of(id or new_id())
        if to and not await without_blocking(self.host.settings, lambda: self.host.store.exists(to)):
            raise _not_at_work(to)
        if id and (sent := await self.sent(to or session, origin)) is not None:
            if self._sub_agent(session) is None:
                (await self.open(session)).work()  # an earlier process may have died before it ran
            return sent
        command = Submit(message=message, by=by, origin=origin, way=way)
        event = await self.send(session, Steer(message=message, by=by, origin=origin, to=to) if steer else command)
        if event is None:  # the same input came twice at once
            if (sent := await self.sent(to or session, origin)) is None:
                raise _not_at_work(to)
            return sent
        assert isinstance(event, InputReceived)
        return event

    async def sent(self, session: str, origin: InputOrigin) -> InputReceived | None:
        """Return the input of an origin; None if no input is."""
        known = self.usable(session)
        if known is not None and origin not in known.session.state.work.origins:
            return None
        await without_blocking(self.host.settings, lambda: self.host.store.read(session))
        return await anyio.to_thread.run_sync(input_of, self.host.store, session, origin)

    async def stop(self, session: str, by: str = "") -> Stopped:
        """Withdraw the messages that wait in a session, then end the running turn.

        In the other order, the next message would begin a turn.
        """
        withdrawn: tuple[InputReceived, ...] = ()
        if self._sub_agent(session) is None:
            writer = (await self.open(session, take_up=False)).session
            waiting = tuple(writer.state.inputs.values())
            withdrawn = tuple([one for one in waiting if await writer.send(Withdraw(input=one.id)) is not None])
        return Stopped(await self.send(session, Interrupt(by=by)), withdrawn)

    def _sub_agent(self, session: str) -> Session | None:
        """Return a sub-agent at work here. A user can answer, steer and stop it, and nothing else."""
        here = self.host.sessions.get(session)
        return here if here is not None and here.above is not None else None

    # --- deleting ---------------------------------------------------------------------------------------------------

    async def delete(self, session: str) -> None:
        """Delete a session and its sub-agents' sessions. A running turn is interrupted for good."""
        await self.ready()
        await without_blocking(self.host.settings, lambda: self.require(session))
        self.host.store.require_lock(session)
        self._being_deleted.add(session)
        try:
            async with self.lock(session):
                await self._delete_family(session)
        finally:
            self._being_deleted.discard(session)

    async def _delete_family(self, session: str) -> None:
        await self.end_work(session)
        records = WorkspaceRecords(self.host.workspace, self.host.store, self.host.settings.agent_data_dir)
        family = await anyio.to_thread.run_sync(records.family, session)
        for member in family[:-1]:
            async with self.lock(member):  # a client may look after an earlier sub-agent
                await self.end_work(member)
        await anyio.to_thread.run_sync(records.delete, session)
        for member in family:
            self.host.left.pop(member, None)
            self.deleted(member)

    async def end_work(self, session: str) -> None:
        """Interrupt the running turn of a session for good, and close it. Call it with the session's lock."""
        if (known := self.sessions.get(session)) is not None:
            known.is_closing = True  # a task that needs it now waits for the lock
            await known.close_left()
            await known.session.send(Close(by=self.surface))
            await known.until_idle()
            await known.until_no_job()
            await self.close(known)
        elif session in self.host.sessions:
            raise SessionBusy(f"session {session} works for another one", fix="delete that, or interrupt it")


def origin_of(id: str) -> InputOrigin:
    """Return the origin of an input with a sender's id. Raise ConfigError if the id is not valid."""
    if not _ID.fullmatch(id):
        raise ConfigError(f"{id[:80]!r} cannot be an id", fix="1 to 64 letters, digits and . _ : -")
    return InputOrigin.of(f"web:{id}")


def _not_at_work(child: str) -> SessionBusy:
    return SessionBusy(f"no sub-agent {child[:80]} is at work here", fix="leave `to` out")
