"""Gateway: the state that routes share: the runner of the sessions, the broadcast of their events, views, downloads."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
import msgspec
from msgspec import Struct

from lmagent.app.host import Host
from lmagent.app.runner import Runner
from lmagent.app.servers.downloads import Downloads
from lmagent.core import events as ev
from lmagent.core.errors import LmagentError, ungrouped
from lmagent.core.view import Block, View, reduce
from lmagent.gateway.broadcast.broadcast import Broadcast
from lmagent.gateway.logins import McpLogins
from lmagent.schedule.scheduler import Scheduler
from lmagent.store.index import SessionIndex
from lmagent.store.port import SessionStore, SessionTail

if TYPE_CHECKING:
    from lmagent.gateway.forwarding import Forwarder

SURFACE = "web"  # the gateway's name in the log


class Load(Struct, frozen=True):
    """Sessions, those that are open for writing, running turns, and approvals that wait for the user."""

    sessions: int
    open: int
    running: int
    approvals: int


class Gateway:
    """The sessions of one workspace, for all clients on the network; `say` shows a line at the server's terminal."""

    def __init__(self, host: Host, *, say: Callable[[str], None]) -> None:
        host.attended = True
        self.host = host
        self.say = say
        self.runner = Runner(host, say, surface=SURFACE, attended=True)
        self.broadcast = Broadcast(self.runner)
        self.uploads = host.settings.agent_data_dir / "web" / "uploads"  # the images that wait for a message
        if host.settings.cluster_url:  # another worker may get the message
            self.uploads = host.workspace / ".lmagent" / "uploads"
        self.views = Views(host.store)
        self.downloads = Downloads(host)
        self.logins = McpLogins(host.settings.agent_data_dir)
        self.renewed: dict[str, anyio.Event] = {}  # sessions that begin a new conversation, each until its event
        self.counters: Counter[str] = Counter()  # of the metrics
        self.accepting = anyio.Lock()  # held while a chat completion finds its session and is recorded
        self.answered: deque[str] = deque(maxlen=4096)  # inputs of completions whose answer was delivered or unwanted
        self.forwarder: Forwarder | None = None  # of a cluster's gateway, which runs no sessions itself
        self.runner.deleted = self._deleted

    async def run(self) -> None:
        """Work until cancelled. Turns that run then stay open in the log for the next gateway."""
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self.broadcast.run)
                tasks.start_soon(self.downloads.run)
                tasks.start_soon(self.logins.run)
                await self.work()
                await anyio.sleep_forever()
        finally:
            self.broadcast.end_all()

    @property
    def place(self) -> str:
        """Return the workspace, as clients see it."""
        return str(self.host.workspace)

    async def load(self) -> Load:
        """Return the work of this process.

        Without a thread: while many sessions stream, a thread waits five milliseconds for each call of the system.
        """
        here = list(self.host.sessions.values())
        running = sum(session.running for session in here)
        return Load(self.host.store.count(), len(here), running, sum(len(one.state.approvals) for one in here))

    async def work(self) -> None:
        """Run the sessions until cancelled."""
        await self.runner.run(self.schedule)

    async def end(self) -> None:
        await self.runner.end()
        self.broadcast.end_all()

    @contextmanager
    def index(self) -> Generator[SessionIndex]:
        """Open the refreshed index of the sessions, in a thread."""
        with self.host.store.index() as index:
            index.refresh()
            yield index

    async def last_seq(self, session: str) -> int:
        """Return the `seq` of the last recorded event of a session, 0 if it has none."""
        if (here := self.host.sessions.get(session)) is not None:
            return here.state.seq
        return await anyio.to_thread.run_sync(self.host.store.last_seq, session)

    async def schedule(self) -> None:
        """Run the jobs until cancelled."""
        try:
            with ungrouped():
                await Scheduler(self.runner, startup=True).run()
        except LmagentError as error:
            self.say(f"the scheduler of this gateway has stopped: {error}")

    def _deleted(self, session: str) -> None:
        self.views.forget()
        self.broadcast.end(session)


# --- views ------------------------------------------------------------------------------------------------------------

KEPT = 8  # sessions whose view is cached


class Folded:
    """The view of one session up to `seq`. Blocks of ended turns are kept apart, for the speed of long ones."""

    def __init__(self, tail: SessionTail) -> None:
        self.seq = 0
        self._tail = tail
        self._view = View()
        self._over: list[Block] = []
        self._lock = threading.Lock()

    def look(self) -> tuple[int, View, tuple[Block, ...]]:
        """Return the last `seq` folded in, the view without its blocks, and all its blocks."""
        with self._lock:
            while events := self._tail.read():
                for event in events:
                    self._take(event)
            return self.seq, msgspec.structs.replace(self._view, blocks=()), (*self._over, *self._view.blocks)

    def _take(self, event: ev.DurableEvent) -> None:
        self.seq = event.seq
        if isinstance(event, ev.SessionCreated) and event.replaces:
            self._over.clear()
        self._view = reduce(self._view, event)
        if isinstance(event, ev.TurnFinished):
            self._over += self._view.blocks
            self._view = msgspec.structs.replace(self._view, blocks=())


class Views:
    """The views of the most recently viewed sessions."""

    def __init__(self, store: SessionStore) -> None:
        def folded(session: str) -> Folded:
            return Folded(store.tail(session))

        self._kept = lru_cache(KEPT)(folded)
        self.forget = self._kept.cache_clear  # after that, another session may have the id of an earlier one

    async def look(self, session: str) -> tuple[int, View, tuple[Block, ...]]:
        """See `Folded.look`; the session must exist."""
        return await anyio.to_thread.run_sync(self._kept(session).look)
