"""Gateway: the state that routes share: the runner of the sessions, the broadcast of their events, views, downloads."""

from __future__ import annotations

from collections.abc import Callable

import anyio
import anyio.to_thread

from lmagent.app.host import Host
from lmagent.app.runner import Runner
from lmagent.app.servers.downloads import Downloads
from lmagent.core.errors import LmagentError, ungrouped
from lmagent.gateway.broadcast.broadcast import Broadcast
from lmagent.gateway.views import Views
from lmagent.store.follow import last_seq
from lmagent.store.log import EVENTS

SURFACE = "web"
"""The gateway's name in the log."""


class Gateway:
    """The sessions of one workspace, for all clients on the network.

    Args:
        host: opens the sessions. Clients answer their approvals.
        say: shows a line to the user at the server's terminal.

    Attributes:
        renewed: the sessions whose id begins a new conversation at this moment, each with an event for its end.
    """

    def __init__(self, host: Host, *, say: Callable[[str], None]) -> None:
        host.attended = True
        self.host = host
        self.say = say
        self.runner = Runner(host, say, surface=SURFACE, attended=True)
        self.broadcast = Broadcast(self.runner)
        self.views = Views(host.store.root)
        self.downloads = Downloads(host)
        self.renewed: dict[str, anyio.Event] = {}
        self.runner.deleted = self._deleted

    async def run(self) -> None:
        """Work until cancelled. Turns that run then stay open in the log for the next gateway."""
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self.broadcast.run)
                tasks.start_soon(self.downloads.run)
                await self.runner.run(self._schedule)
                await anyio.sleep_forever()
        finally:
            self.broadcast.end_all()

    async def end(self) -> None:
        await self.runner.end()
        self.broadcast.end_all()

    async def last_seq(self, session: str) -> int:
        """Return the `seq` of the last recorded event of a session, 0 if it has none."""
        if (here := self.host.sessions.get(session)) is not None:
            return here.state.seq
        return await anyio.to_thread.run_sync(last_seq, self.host.store.root / session / EVENTS)

    async def _schedule(self) -> None:
        from lmagent.schedule.scheduler import Scheduler  # not needed before the first answer

        try:
            with ungrouped():
                await Scheduler(self.runner, startup=True).run()
        except LmagentError as error:
            self.say(f"the scheduler of this gateway has stopped: {error}")

    def _deleted(self, session: str) -> None:
        self.views.forget(session)
        self.broadcast.end(session)
