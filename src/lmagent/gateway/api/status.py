"""Status: the gateway's state, with the field names of earlier clients."""

from __future__ import annotations

import time

from anyio import to_thread
from msgspec import Struct

from lmagent import __version__
from lmagent.gateway.http.route import Call, Route
from lmagent.providers.concealed import shown

STARTED = time.monotonic()
"""When this process loaded the gateway."""


class Status(Struct, frozen=True):
    """The gateway's state.

    Attributes:
        status: `running`.
        model: of new sessions; empty for the server's choice.
        endpoint: the model server.
        mode: permission mode of new sessions.
        uptime: seconds since the start.
        sessions: number of sessions.
        open: number of sessions open here.
        running: number of running turns.
        tools: number of tools.
    """

    status: str
    agent: str
    version: str
    model: str
    endpoint: str
    mode: str
    workspace: str
    uptime: float
    sessions: int
    open: int
    running: int
    tools: int


async def show_status(call: Call) -> Status:
    """Return the state, without querying the model server or reading logs."""
    host = call.gateway.host
    here = list(host.sessions.values())
    return Status(
        status="running",
        agent=host.agent.name,
        version=__version__,
        model=host.agent.model,
        endpoint=shown(host.settings.endpoint),
        mode=host.settings.permission_mode,
        workspace=str(host.workspace),
        uptime=round(time.monotonic() - STARTED, 3),
        sessions=len(await to_thread.run_sync(host.store.sessions)),
        open=len(here),
        running=sum(session.running for session in here),
        tools=sum(1 for _ in host.toolbox),
    )


ROUTES = (Route("GET", "/api/status", show_status, "How the gateway is", answer=Status),)
