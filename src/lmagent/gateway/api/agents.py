"""Agents: those that a new session can have."""

from __future__ import annotations

from msgspec import Struct

from lmagent.app.host import Host
from lmagent.core.agent import DEFAULT_AGENT, NamedAgent
from lmagent.core.events import PermissionMode
from lmagent.gateway.http.route import Call, Routes

ROUTES = Routes()


class AgentRow(Struct, frozen=True):
    """An agent: its name, as its author wrote it in `title`, its purpose, the file or folder that it is from, and mode
    and model of its new sessions."""

    name: str
    title: str
    description: str
    source: str
    mode: PermissionMode
    model: str


class AgentList(Struct, frozen=True):
    """The agents that a new session can have, and the name of the one that it has by default."""

    agents: tuple[AgentRow, ...]
    current: str


@ROUTES.get("/api/agents", "Agents that a new session can have")
def list_agents(call: Call) -> AgentList:
    host = call.gateway.host
    rows = tuple(_row(host, agent) for agent in host.choosable())
    return AgentList(rows, host.parts(host.named).agent.name)


def _row(host: Host, agent: NamedAgent) -> AgentRow:
    model = host.parts(agent).agent.model if agent.name != DEFAULT_AGENT else host.agent.model
    return AgentRow(agent.name, agent.title or agent.name, agent.description, agent.source, host.mode_of(agent), model)
