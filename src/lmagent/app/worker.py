"""A worker of a cluster: it runs the work of the workspaces that it mounts, until it is drained."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import cast

import anyio
from msgspec.structs import replace

from lmagent.app.host import Host
from lmagent.app.options import HostOptions
from lmagent.app.retention import retain
from lmagent.app.runner import Runner
from lmagent.app.wiring import open_host
from lmagent.cluster.member import Member, member_at
from lmagent.cluster.queue import ClusterDispatcher
from lmagent.cluster.status import drain
from lmagent.cluster.threads import in_thread
from lmagent.core.errors import LmagentError, StoreError, ungrouped
from lmagent.schedule.scheduler import Scheduler

LOOK = 0.25  # seconds between two looks at whether the worker is to end
AGAIN = 5.0  # seconds after which a scheduler that failed is started again

Say = Callable[[str], None]


class MountedWorkspace:
    """A workspace of the cluster in this worker: its host, its sessions and its jobs."""

    def __init__(self, name: str, host: Host, say: Say) -> None:
        self.name = name
        self.host = host
        self.runner = Runner(host, say, attended=True)
        self.dispatcher: ClusterDispatcher | None = None
        self.is_draining = False
        self._say = say

    @property
    def is_busy(self) -> bool:
        """Whether work runs that may end by itself: a turn that waits for an answer does not."""
        asking = {id for id, known in self.runner.sessions.items() if known.session.state.approvals}
        turns = {id for id, known in self.runner.sessions.items() if known.is_working}
        jobs = {job.lane for job in self.dispatcher.running} if self.dispatcher is not None else set[str]()
        return bool((turns | jobs) - asking)

    async def run(self) -> None:
        await self.runner.run(self._schedule)

    def drain(self) -> None:
        """Begin no more jobs here."""
        self.is_draining = True
        if self.dispatcher is not None:
            self.dispatcher.drain()

    async def _schedule(self) -> None:
        while True:
            try:
                with ungrouped():
                    scheduler = Scheduler(self.runner, startup=True)
                    self.dispatcher = cast("ClusterDispatcher", scheduler.dispatcher)
                    if self.is_draining:
                        self.dispatcher.drain()
                    await scheduler.run()
            except LmagentError as error:
                self._say(f"its scheduler is started again in {AGAIN:g} seconds: {error}")
                await anyio.sleep(AGAIN)


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
                tasks.start_soon(retain, workspace.host, workspace.runner.say)
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
