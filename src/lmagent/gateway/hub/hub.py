"""Hub: the sessions of a workspace as a server has them.

A session is opened when something is wanted of it, and released when it has been idle, so that a terminal can go on
with it. Watching one never opens it. What was accepted is on disk before it is answered, and the next hub goes on
with it if this process dies.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, nullcontext
from functools import partial

import anyio
import anyio.abc
import anyio.to_thread
import msgspec

from lmagent.app.downloads import Downloads
from lmagent.app.host import Host
from lmagent.core.commands import Approve, Close, Command, Continue, DecidePlan, Interrupt, Steer, Submit
from lmagent.core.errors import SessionBusy
from lmagent.core.events import DurableEvent, InputReceived
from lmagent.core.ids import is_session_id, new_id
from lmagent.core.messages import Message
from lmagent.core.work import Way
from lmagent.engine.session import Session
from lmagent.gateway.http.errors import Refusal
from lmagent.gateway.hub.channel import Channel, Pulse
from lmagent.gateway.hub.deleting import delete_family
from lmagent.gateway.hub.desk import Desk
from lmagent.gateway.hub.fan import Watching
from lmagent.gateway.hub.feed import Feed, Following
from lmagent.gateway.hub.jobs import desk_place
from lmagent.gateway.hub.keeping import Keeper
from lmagent.gateway.hub.places import check_lock, check_place, check_session
from lmagent.gateway.hub.sent import BY, find_sent, job_of, not_at_work
from lmagent.gateway.hub.views import Views
from lmagent.store.follow import last_seq
from lmagent.store.log import EVENTS, JsonlLog

WAIT = "it is free when that has ended; interrupt it, or steer it"

BEGINS_WORK = (Submit, Steer, Continue, DecidePlan)
"""Commands behind which there may be something to do; `Compact` too, which `wants_compaction` tells."""


class Hub:
    """The sessions of one workspace, for all who ask over the network.

    Args:
        host: the sessions; its approvals are put before whoever watches.
        say: shows the person at the server's terminal what they should know.
    """

    def __init__(self, host: Host, *, say: Callable[[str], None]) -> None:
        self.host = host
        self.say = say
        self.desks: dict[str, Desk] = {}
        self.channels: dict[str, Channel] = {}
        self.feed = Feed(host.store.root)
        self.views = Views(host.store.root)
        self.downloads = Downloads(host)
        host.attended = True
        host.opened = self._opened_in_host
        host.released = self._released_in_host
        host.places = partial(desk_place, self)
        self._pulse = Pulse()
        self._keeper = Keeper(self)
        self._locks: dict[str, anyio.Lock] = {}
        self._deleted: set[str] = set()
        self.renewed: dict[str, anyio.Event] = {}
        """Sessions whose id begins a new conversation at this moment, until each is done."""
        self.opening = anyio.Event()
        """The next session that opens sets it, so that a client waiting for its session looks again."""
        self._tasks: anyio.abc.TaskGroup | None = None
        self._runs = anyio.Event()
        self._is_left = False

    # --- running ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Work until cancelled: go on with what an earlier hub left, do what is due, release what is idle."""
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                tasks.start_soon(self._pulse.run)
                tasks.start_soon(self.feed.run)
                tasks.start_soon(self.downloads.run)
                tasks.start_soon(self._keeper.run)
                self._runs.set()
                await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await self.leave()

    async def leave(self) -> None:
        """Stop: turns that run stay open in the log for the next hub, and every watcher's stream ends."""
        self._is_left = True
        await self._keeper.stop()
        for desk in list(self.desks.values()):
            await desk.stop()
            await self.release(desk.id)
        for channel in list(self.channels.values()):
            channel.fan.end()
        self.feed.fan.end()

    # --- desks ------------------------------------------------------------------------------------------------------

    async def begin(self, id: str = "") -> Desk:
        """A new session, which is on disk already.

        Args:
            id: what it is called; empty for a name made from the time.

        Raises:
            StoreError: there is one of that name, or it cannot be written.
            Refusal: what stands at its place is no session.
        """
        tasks = await self._running()
        async with self.lock(id) if id else nullcontext():  # one of that name may just be deleted
            check_place(self.host.store.root / id)
            return self._desk_of(await self.host.new_session(id), tasks)

    async def desk(self, session: str, *, take_up: bool = True) -> Desk:
        """A session, opened for writing where it is not open; what a gateway that died has left in it is gone on with.

        Args:
            session: its id.
            take_up: False for who is about to end what was left.

        Raises:
            SessionNotFound: there is none of that id.
            SessionBusy: another process writes it, or it is a sub-agent's at work.
        """
        tasks = await self._running()
        if (known := self.opened(session)) is not None:
            known.touch()
            return known
        async with self.lock(session):
            if (known := self.opened(session)) is not None:
                known.touch()
                return known
            self.must_be_there(session)
            check_lock(self.host.store, session)
            if session in self.desks:
                await self.close(self.desks[session])  # its log took nothing more
            if self._of_others(session) is not None:
                raise SessionBusy(f"session {session} is at work here for another session", fix=WAIT)
            desk = self._desk_of(await self.host.open_session(session), tasks)
            desk.is_opening = take_up  # who else wants it waits until it has been seen what was left
            if take_up:
                await self._keeper.take_up(desk)
                desk.is_opening = False
            return desk

    async def seat(self, log: JsonlLog) -> Desk:
        """A session whose log is open, and of whose conversation nothing is known here; call it with its lock."""
        self.host.left.pop(log.session, None)
        self.views.forget(log.session)
        return self._desk_of(await self.host.open_session(log.session, log), await self._running())

    def opened(self, session: str) -> Desk | None:
        """A session's desk, if it is open here and well."""
        desk = self.desks.get(session)
        return desk if desk is not None and desk.is_well else None

    async def release(self, session: str, *, fits: Callable[[Desk], bool] = lambda desk: True) -> None:
        """Close a session, so that other processes may go on with it; its watchers stay.

        Args:
            session: its id.
            fits: asked in the moment in which it would be closed; it stays open where this says no.
        """
        async with self.lock(session):
            if session in self.desks and fits(self.desks[session]):
                await self.close(self.desks[session])

    async def close(self, desk: Desk) -> None:
        """Close a desk; call it with the session's lock."""
        desk.is_closing = True  # what is wanted of it from here on waits, and opens it again
        await desk.stop()
        await self.host.release(desk.id)
        self.desks.pop(desk.id, None)

    def _desk_of(self, session: Session, tasks: anyio.abc.TaskGroup) -> Desk:
        desk = self.desks[session.state.session] = Desk(session, self.host, tasks, self.say)
        self.channel(desk.id).listen(session)
        opening, self.opening = self.opening, anyio.Event()
        opening.set()
        desk.sleep()
        return desk

    @property
    def is_left(self) -> bool:
        """Whether this hub is about to end, so that what runs is the next one's."""
        return self._is_left

    async def _running(self) -> anyio.abc.TaskGroup:
        await self._runs.wait()
        if self._is_left:
            raise Refusal(503, "leaving", "the gateway is about to end", fix="try again in a moment")
        assert self._tasks is not None
        return self._tasks

    def lock(self, session: str) -> anyio.Lock:
        """Who opens, closes or deletes a session does so alone."""
        return self._locks.setdefault(session, anyio.Lock())

    def must_be_there(self, session: str) -> None:
        """Refuse what is no session.

        Raises:
            SessionNotFound: there is none of that id.
        """
        check_session(self.host.store, session, is_deleted=session in self._deleted)

    # --- commands ---------------------------------------------------------------------------------------------------

    async def send(self, session: str, command: Command) -> DurableEvent | None:
        """Carry out a command; the event that records it is on disk then.

        Raises:
            SessionNotFound, SessionBusy: see `desk`.
            LmagentError: it does not fit now.
        """
        if not command.by:
            command = msgspec.structs.replace(command, by=BY)
        if (run := self._of_others(session)) is not None and isinstance(command, Steer | Interrupt | Approve):
            return await run.send(command)
        ends = isinstance(command, Close) or (isinstance(command, Interrupt) and not command.to)
        was_open = self.opened(session) is not None
        desk = await self.desk(session, take_up=not ends)
        if isinstance(command, Interrupt) and ends:
            ended = await desk.interrupt(command)
            if not was_open:
                await self._keeper.take_up(desk)  # what was accepted behind the turn that is ended now
            return ended
        if isinstance(command, Close):
            await desk.close_left()
        event = await desk.session.send(command)
        if isinstance(command, BEGINS_WORK) or desk.session.wants_compaction is not None:
            desk.work()
        if isinstance(command, Close):
            await desk.until_idle()
            await self.release(session)
        return event

    async def submit(
        self,
        session: str,
        message: Message,
        *,
        id: str = "",
        steer: bool = False,
        by: str = BY,
        to: str = "",
        way: Way | None = None,
    ) -> InputReceived:
        """Take an input in; whoever repeats it under the same id gets the event that was recorded the first time.

        Args:
            session: the session.
            message: what the model is told.
            id: the sender's own name for the input; empty for one that is never repeated.
            steer: for the turn that runs; without it, for a turn of its own.
            by: the surface.
            to: id of the sub-agent's session that is meant by a steering input; empty for the session itself.
            way: see `Submit`.

        Raises:
            SessionNotFound, SessionBusy: see `desk`.
            Refusal: the id is none, or that sub-agent is not at work.
        """
        job = job_of(id or new_id())
        if to and not (is_session_id(to) and (self.host.store.root / to).is_dir()):
            raise not_at_work(to)
        if id and (sent := await self.sent(to or session, job)) is not None:
            if self._of_others(session) is None:
                (await self.desk(session)).work()  # it may be what an earlier process was killed over
            return sent
        command = Submit(message=message, by=by, job=job, way=way)
        event = await self.send(session, Steer(message=message, by=by, job=job, to=to) if steer else command)
        if event is None:  # the same input came twice at once
            if (sent := await self.sent(to or session, job)) is None:
                raise not_at_work(to)
            return sent
        assert isinstance(event, InputReceived)
        if (desk := self.opened(to or session)) is not None:
            desk.remember(job, event)
        return event

    async def sent(self, session: str, job: str) -> InputReceived | None:
        """The input that was recorded under a job's id, see `job_of`; None where there is none.

        Raises:
            SessionNotFound: there is no such session.
        """
        if (desk := self.opened(session)) is not None:
            if job not in desk.session.state.work.jobs:
                return None
            if job in desk.inputs:
                return desk.inputs[job]
        return await anyio.to_thread.run_sync(find_sent, self.host.store, session, job)

    def _of_others(self, session: str) -> Session | None:
        """A sub-agent at work in this process: a person may answer what it asks, steer or stop it, and nothing else."""
        here = self.host.sessions.get(session)
        return here if here is not None and here.above is not None else None

    # --- watching ---------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def watch(self, session: str, after: int = 0) -> AsyncGenerator[Watching]:
        """What is recorded in a session after `after`, then everything that happens in it, each event once.

        Raises:
            SessionNotFound: there is none of that id.
        """
        tasks = await self._running()
        self.must_be_there(session)
        channel = self.channel(session)
        if not channel.is_heard and (here := self.host.sessions.get(session)) is not None:
            channel.listen(here)
        async with channel.fan.watch(after) as watching:
            if not channel.is_heard:
                tasks.start_soon(channel.follow)
            try:
                yield watching
            finally:
                self._keeper.left(session)

    async def last_seq(self, session: str) -> int:
        """The last event that is recorded in a session; 0 where it has none."""
        if (here := self.host.sessions.get(session)) is not None:
            return here.state.seq
        return await anyio.to_thread.run_sync(last_seq, self.host.store.root / session / EVENTS)

    @asynccontextmanager
    async def watch_all(self, after: str = "") -> AsyncGenerator[Following]:
        """What is recorded in all sessions after a cursor, or from now on.

        Raises:
            Refusal: the cursor is none of this index.
        """
        await self._running()
        async with self.feed.watch(after) as following:
            yield following

    def channel(self, session: str) -> Channel:
        """The stream of a session; a new one where the last has ended and somebody slow has not left it yet."""
        known = self.channels.get(session)
        if known is None or known.fan.is_over:
            if known is not None:
                known.deafen()
            known = self.channels[session] = Channel(session, self.host.store.root / session / EVENTS, self._pulse)
        return known

    def _opened_in_host(self, session: Session) -> None:
        """Somebody has opened a session in this process: a desk, a job, a call that began a sub-agent."""
        self.channel(session.state.session).listen(session)
        session.listen(self.feed.notice)

    def _released_in_host(self, session: str) -> None:
        channel = self.channels.get(session)
        if channel is not None:
            channel.deafen()
            if channel.fan.watchers and self._tasks is not None and not self._is_left:
                self._tasks.start_soon(channel.follow)
            else:
                self.forget(session)

    def forget(self, session: str) -> None:
        """Keep nothing of a session that nobody watches and that is not open here."""
        channel = self.channels.get(session)
        if channel is not None and not (channel.fan.watchers or channel.is_heard):
            self.channels.pop(session, None)
        if session not in self.desks and (lock := self._locks.get(session)) is not None and not lock.locked():
            self._locks.pop(session, None)

    # --- deleting ---------------------------------------------------------------------------------------------------

    async def delete(self, session: str) -> None:
        """Delete a session and those that worked for it; what runs in it is interrupted for good.

        Raises:
            SessionNotFound: there is none of that id.
            SessionBusy: another process writes it; nothing was deleted.
        """
        await self._running()
        self.must_be_there(session)
        check_lock(self.host.store, session)
        self._deleted.add(session)
        try:
            async with self.lock(session):
                await delete_family(self, session)
        finally:
            self._deleted.discard(session)
