"""Places: where the turns of jobs are run. A gateway has one lane a session, for people and jobs alike; without one, a
job has the session for itself."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Protocol

import anyio

from lmagent.app.host import Host
from lmagent.core.commands import Continue
from lmagent.core.errors import SessionBusy, SessionNotFound
from lmagent.engine.lane import run_until_idle
from lmagent.engine.session import SCHEDULER, Session


class Place(Protocol):
    """A session in which a job works."""

    @property
    def session(self) -> Session:
        """The session, open for writing."""
        ...

    async def run(self, job: str, *, left: bool, until: float) -> None:
        """Run the turn of a job's input, which is in the log, to its end.

        Args:
            job: id of the job.
            left: the turn has begun, and somebody left it unfinished.
            until: Unix seconds until which it outlasts that no model server can be reached.

        Raises:
            ProviderError: none can be; the turn stays open.
            Postponed: it could not be run now.
            LmagentError: it failed.
        """
        ...


class OwnPlace:
    """A session that a job has for itself, with nobody to ask.

    Args:
        session: the session.
        host: whose it is.
        patient: what the end of this program cuts off is gone on with, and so is what wants a server.
    """

    def __init__(self, session: Session, host: Host, *, patient: bool) -> None:
        self.session = session
        self._host = host
        self._patient = patient

    async def run(self, job: str, *, left: bool, until: float) -> None:
        """See `Place`."""
        if left:
            await self.session.send(Continue(by=SCHEDULER))
        self.session.outlasts_outages = self._patient and self._host.clock.now() < until
        await run_until_idle(self.session, resumable=self._patient)


@asynccontextmanager
async def own_place(host: Host, id: str, *, patient: bool) -> AsyncGenerator[Place]:
    """A session of its own, or an existing one; closed again, whatever happens.

    Raises:
        SessionBusy: somebody else has it open, here or elsewhere.
    """
    if id in host.sessions:
        raise SessionBusy(f"session {id} is open in this program", fix="close it")
    host.unattended.add(id)
    try:
        session = await (host.open_session(id) if is_there(host, id) else host.new_session(id))
    finally:
        if id not in host.sessions or host.sessions[id].wiring.attended:
            host.unattended.discard(id)
    try:
        yield OwnPlace(session, host, patient=patient)
    finally:
        with anyio.CancelScope(shield=True):
            await host.release(id)


def is_there(host: Host, session: str) -> bool:
    """Whether there is such a session."""
    try:
        host.store.read(session)
    except SessionNotFound:
        return False
    return True
