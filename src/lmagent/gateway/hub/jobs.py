"""Jobs: what the scheduler of a gateway runs is run on the lane of the session's desk, between what people send."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio

from lmagent.app.places import Place, is_there
from lmagent.app.scheduled import turn_of
from lmagent.core.commands import Continue
from lmagent.core.ports import Postponed
from lmagent.engine.outage import be_patient
from lmagent.engine.session import SCHEDULER, Session
from lmagent.gateway.hub.desk import Desk

if TYPE_CHECKING:
    from lmagent.gateway.hub.hub import Hub

AGAIN = 1.0
"""Seconds after which a job is tried again whose session was closed before its turn could begin."""


class DeskPlace:
    """A job's place at a desk.

    Args:
        hub: whose desk it is.
        desk: the desk.
    """

    def __init__(self, hub: Hub, desk: Desk) -> None:
        self._hub = hub
        self._desk = desk

    @property
    def session(self) -> Session:
        """See `Place`."""
        return self._desk.session

    async def run(self, job: str, *, left: bool, until: float) -> None:
        """See `Place`. The lane goes on with what people sent when this returns; without a server, the turn waits."""
        desk = self._desk
        be_patient(desk.session, job, until)
        if left and not desk.session.running:
            await desk.session.send(Continue(by=SCHEDULER))
        desk.work()
        if not await desk.until(lambda: self._is_over(job)):
            if desk.failure is not None:
                raise desk.failure
            raise Postponed(AGAIN)

    def _is_over(self, job: str) -> bool:
        """Whether the turn has ended, or its input was taken back."""
        if any(input.job == job for input in self.session.state.inputs.values()):
            return False
        return turn_of(self._hub.host.store, self._desk.id, job) != "open"


@asynccontextmanager
async def desk_place(hub: Hub, session: str) -> AsyncGenerator[Place]:
    """A job's place at the desk of a session, which is begun where there is none of that id.

    Raises:
        SessionBusy: another process has it open.
        LmagentError: it cannot be opened.
    """
    desk = await (hub.desk(session) if is_there(hub.host, session) else hub.begin(session))
    desk.jobs += 1
    try:
        yield DeskPlace(hub, desk)
    finally:
        desk.jobs -= 1
        desk.tell()
        with anyio.CancelScope(shield=True):
            watched = hub.channel(session).fan.watchers
            await hub.release(session, fits=lambda it: it is desk and not (it.is_needed or watched))
