"""A worker of a cluster: it runs the work of the workspaces that it mounts, until it is drained."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import cast

import anyio
from msgspec.structs import replace
from starlette.types import Message

from lmagent.app.host import Host
from lmagent.app.options import HostOptions
from lmagent.app.retention import retain
from lmagent.app.wiring import open_host
from lmagent.cluster.member import Member, member_at
from lmagent.cluster.queue import ClusterDispatcher
from lmagent.cluster.requests import RequestEnd, RequestHead, Requests
from lmagent.cluster.status import drain
from lmagent.cluster.store import ClusterStore
from lmagent.cluster.threads import in_thread
from lmagent.core.errors import LmagentError, SessionBusy, StoreError, WorkerMissing, ungrouped
from lmagent.gateway.forwarding import BROKEN
from lmagent.gateway.gateway import Gateway
from lmagent.gateway.http.access import Access
from lmagent.gateway.http.accessstore import access_store
from lmagent.gateway.http.app import GatewayApp
from lmagent.schedule.scheduler import Scheduler

LOOK = 0.25  # seconds between two looks at whether the worker is to end
BUSY = 409  # status of the answer when another process has the session open, among others
AGAIN = 5.0  # seconds after which a scheduler that failed is started again
TIDY = 60.0  # seconds between two deletions of requests whose gateway is dead
BEAT = 1.0  # seconds between two looks at whether a session is still open here
CROWD, CROWDED = 0.02, 0.5  # seconds for which a request is left to others: for each session at work here, and at most

Say = Callable[[str], None]


class MountedWorkspace(Gateway):
    """A workspace of the cluster in this worker: a gateway without a socket, which answers what gateways forward."""

    def __init__(self, name: str, host: Host, say: Say) -> None:
        super().__init__(host, say=say)
        self.name = name
        self.dispatcher: ClusterDispatcher | None = None
        self.is_draining = False
        self._waits = False  # whether it is about to look for requests that any worker may answer
        access = Access(access_store(host.settings), token=host.settings.web_token)
        self._app = GatewayApp(self, access, say=say)
        self._requests = Requests(cast("ClusterStore", host.store).member, name, answers=True)

    @property
    def is_busy(self) -> bool:
        """Whether work runs that may end by itself: a turn that waits for an answer does not."""
        asking = {id for id, known in self.runner.sessions.items() if known.session.state.approvals}
        jobs = {job.lane for job in self.dispatcher.running} if self.dispatcher is not None else set[str]()
        return bool((self._at_work | jobs) - asking)

    @property
    def _at_work(self) -> set[str]:
        return {id for id, known in self.runner.sessions.items() if known.is_working}

    def drain(self) -> None:
        """Begin no more jobs here, and take requests only for the sessions that are open here."""
        self.is_draining = True
        if self.dispatcher is not None:
            self.dispatcher.drain()

    async def schedule(self) -> None:
        """Answer requests and run jobs until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._requests.run, self._take)
            tasks.start_soon(self._tidy)
            while True:
                try:
                    with ungrouped():
                        scheduler = Scheduler(self.runner, startup=True)
                        self.dispatcher = cast("ClusterDispatcher", scheduler.dispatcher)
                        if self.is_draining:
                            self.dispatcher.drain()
                        await scheduler.run()
                except LmagentError as error:
                    self.say(f"its scheduler is started again in {AGAIN:g} seconds: {error}")
                    await anyio.sleep(AGAIN)

    # --- requests ---------------------------------------------------------------------------------------------------

    async def _tidy(self) -> None:
        while True:
            with suppress(StoreError):
                await self._requests.tidy()
            await anyio.sleep(TIDY)

    async def _take(self) -> None:
        """Begin to answer the requests for the sessions that are open here, then those that any worker may answer."""
        idle = not (self.is_draining or self._waits or self._at_work)
        while (taken := await self._requests.take(others=idle)) is not None:
            self._requests.start(partial(self._answer, *taken))
        if not (idle or self.is_draining or self._waits):
            self._waits = True
            self._requests.start(self._take_others)

    async def _take_others(self) -> None:
        """Take what any worker may answer: the less is at work here, the sooner."""
        try:
            await anyio.sleep(min(CROWDED, CROWD * len(self._at_work)))
            while not self.is_draining and (taken := await self._requests.take(others=True)) is not None:
                self._requests.start(partial(self._answer, *taken))
        except StoreError:
            pass  # the next look tries again
        finally:
            self._waits = False

    async def _answer(self, head: RequestHead, end: RequestEnd) -> None:
        gone = {"type": f"{head.kind}.disconnect", "code": 1001}

        async def receive() -> Message:
            try:
                return await end.receive()
            except WorkerMissing:
                return gone

        async def send(message: Message) -> None:
            if message.get("status") == BUSY and end.seen == 1 and await self._is_elsewhere(head.session):
                raise SessionBusy("another worker has opened the session")
            await end.send(message)

        with suppress(StoreError):  # the database is away; the gateway tells the client
            try:
                if head.kind == "live":
                    await self._tell_live(head.session, end)
                else:
                    await self._app.answer(head, receive, send)
            except SessionBusy:
                await self._requests.give_back(end)
                return
            except Exception:  # noqa: BLE001 - the app has reported it, and half an answer must not look complete
                await end.send({"type": BROKEN})
            await self._requests.finish(end)

    async def _is_elsewhere(self, session: str) -> bool:
        """Whether another worker has a session open: nothing was done here then."""
        return session not in self.host.sessions and await self._requests.worker_of(session) > 0

    async def _tell_live(self, session: str, end: RequestEnd) -> None:
        """Send what happens in a session and is not recorded, until it is closed here or its watchers have gone."""
        if (here := self.host.sessions.get(session)) is None:
            return
        at = here.state.seq
        async with anyio.create_task_group() as tasks, self.broadcast.watch(session, at) as watching:
            tasks.start_soon(_until_gone, end, tasks.cancel_scope)
            while session in self.host.sessions and (frames := await watching.take(BEAT)) != []:
                for frame in frames or ():
                    at = frame.seq or at
                    if not frame.seq:
                        await end.send({"type": "live", "after": at, "event": frame.data})
            tasks.cancel_scope.cancel()


async def _until_gone(end: RequestEnd, work: anyio.CancelScope) -> None:
    with suppress(WorkerMissing):
        while True:
            await end.receive()
    work.cancel()


class ClusterWorker:
    """One process of a cluster, which mounts workspaces; `open` makes it.

    Attributes:
        mounted: its workspaces.
    """

    def __init__(self, member: Member, say: Say) -> None:
        self.presence = member.presence
        self.mounted: list[MountedWorkspace] = []
        self._member = member
        self._say = say
        self._drains = anyio.Event()

    @classmethod
    async def open(cls, url: str, labels: Mapping[str, Path], options: HostOptions, say: Say) -> ClusterWorker:
        """Join the cluster. Raise LmagentError if the database or a workspace cannot be used."""
        member = member_at(url)
        member.database.check()
        member.presence.kind, member.presence.workspaces = "worker", list(labels)
        worker = cls(member, say)
        try:
            for name, path in labels.items():
                worker.mounted.append(await worker._mount(name, path, options))
            await in_thread(lambda: member.presence.id)
        except BaseException:
            await worker.aclose()
            raise
        return worker

    async def _mount(self, name: str, path: Path, options: HostOptions) -> MountedWorkspace:
        def say(text: str) -> None:
            self._say(f"{name}: {text}")

        flags = {**options.flags, "cluster_url": self._member.database.url, "cluster_workspace": name}
        host = await open_host(replace(options, workspace=path, flags=flags), say=say)
        return MountedWorkspace(name, host, say)

    async def run(self, grace: float) -> None:
        """Work until drained: then the turns that run end within `grace` seconds, or stay open for another worker."""
        async with anyio.create_task_group() as tasks:
            for workspace in self.mounted:
                tasks.start_soon(workspace.run)
                tasks.start_soon(retain, workspace.host, workspace.say)
            tasks.start_soon(self._watch_presence)
            await self._drains.wait()
            self._say("takes no more jobs; running turns may end")
            for workspace in self.mounted:
                workspace.drain()
            with suppress(StoreError):
                await in_thread(lambda: drain(self._member.database, str(self.presence.id)))
            with anyio.move_on_after(grace):
                while any(workspace.is_busy for workspace in self.mounted):  # noqa: ASYNC110 (many things end it)
                    await anyio.sleep(LOOK)
            tasks.cancel_scope.cancel()

    def drain(self) -> None:
        self._drains.set()

    async def aclose(self) -> None:
        for workspace in self.mounted:
            await workspace.host.aclose()
        await in_thread(self._member.close)

    async def _watch_presence(self) -> None:
        while not self.presence.is_draining:  # noqa: ASYNC110 (a thread sets it)
            await anyio.sleep(LOOK)
        self.drain()
