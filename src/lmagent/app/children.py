"""Children: sub-agents as sessions of the host, and what a person sees and says of them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from lmagent.agents.nursery import Bounds, Place
from lmagent.agents.report import ReportReview, fence, hidden, report_tool
from lmagent.agents.tools import decompose_tool, delegate_tool
from lmagent.app.host import Host, OpenRecords
from lmagent.app.registry import Registry, SlashCommand
from lmagent.app.slash import SlashContext, SlashResult
from lmagent.core.commands import Interrupt, Steer
from lmagent.core.errors import ConfigError, ToolError
from lmagent.core.events import DurableEvent, SubagentStarted
from lmagent.core.messages import user
from lmagent.core.ports import Clock
from lmagent.engine.session import Session

if TYPE_CHECKING:
    from lmagent.agents.run import Runner
    from lmagent.agents.shares import Shares

TIGHT = "4k"
"""Profile of windows in which no sub-agent is offered: half of what is free would be too little for its work."""

BEGINNING = ("delegate", "decompose")
"""The tools that begin one."""

NO_ROOM = "the window is too small for a sub-agent beside you. Do the work yourself."

SIDE_BY_SIDE = 4
"""Sub-agents of a session that work at once where the server keeps as many prompts as there are."""


def register(registry: Registry) -> None:
    """Add the tools, their rules and what a person can say to sub-agents; nothing where the settings want none."""
    if not registry.settings.enable_sub_agents:
        return
    children = Children(registry)
    registry.tool(delegate_tool(children, lambda: children.runner))
    registry.tool(decompose_tool(children, lambda: children.runner))
    registry.tool(report_tool(children.session))
    registry.fences.append(fence(children.bounds))
    registry.fences.append(lambda _, tool: NO_ROOM if tool.name in BEGINNING and registry.profile.name == TIGHT else "")
    registry.hides.append(lambda state: hidden(state, children.bounds))
    registry.hides.append(lambda _: set(BEGINNING) if registry.profile.name == TIGHT else set())
    registry.reviews.append(ReportReview(lambda: children.shares))
    registry.abandon = lambda parent, call: children.runner.abandon(parent, call)
    registry.command(SlashCommand("agents", "", "list the sub-agents of this session", _agents))
    registry.command(SlashCommand("steer", "AGENT WORDS", "tell a sub-agent something while it works", _steer))
    registry.command(SlashCommand("stop", "AGENT", "interrupt a sub-agent; the session goes on", _stop))


class Children:
    """See `lmagent.agents.nursery.Nursery`.

    Args:
        registry: knows the sessions, and through them the host.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        settings = registry.settings
        self.bounds = Bounds(settings.agent_max_depth, settings.max_sub_agent_iterations, settings.brief_data_budget)

    @cached_property
    def runner(self) -> Runner:
        """Runs them; made with the first."""
        from lmagent.agents.run import Runner

        return Runner(self)

    @property
    def shares(self) -> Shares:
        """What is left for them."""
        return self.runner.shares

    @property
    def workspace(self) -> Path:
        """The workspace."""
        return self._registry.workspace

    @property
    def clock(self) -> Clock:
        """Time."""
        return self._registry.clock

    def session(self, session: str) -> Session:
        """A session that is open here."""
        return self._registry.records.session(session)

    def events(self, session: str) -> Iterable[DurableEvent]:
        """What is on record of a session."""
        return self._registry.records.events(session)

    async def place(self, parent: Session) -> Place:
        """See the port: the parent's conversation is inherited where the server keeps few, and half of the room is
        left for the sub-agent's own work."""
        kept = await self._host.served.keeps(parent.state.model or parent.agent.model)
        if kept is None:
            depth = parent.state.work.parent.depth if parent.state.work.parent is not None else 0
            return Place(inherits=False, side_by_side=max(1, SIDE_BY_SIDE // (depth + 1)))
        state = parent.state
        room = parent.window.trigger - state.tokens(state.fixed_bytes)
        return Place(inherits=state.tokens(state.conversation_bytes) <= room // 2, side_by_side=1)

    async def open(self, parent: Session, started: SubagentStarted) -> Session:
        """See the port."""
        from lmagent.app.childhood import open_child

        return await open_child(self._host, parent, started, self.bounds, await self.place(parent))

    async def close(self, child: Session) -> None:
        """Release it."""
        await self._registry.end_session(child.state.session)
        self._host.sessions.pop(child.state.session, None)
        child.close()

    @property
    def _host(self) -> Host:
        records = self._registry.records
        if not isinstance(records, OpenRecords) or records.host is None:
            raise ToolError("Sub-agents work for a session; a single call has none.")
        return records.host


# --- what a person says ---------------------------------------------------------------------------------------------


async def _agents(context: SlashContext, _: str) -> SlashResult:
    session = context.session
    lines = _tree(session, 0) if session is not None else []
    return SlashResult("\n".join(lines) or "no sub-agents yet")


def _tree(session: Session, depth: int) -> list[str]:
    lines: list[str] = []
    work = session.state.work
    for key, started in work.children.items():
        result, child = work.results.get(key), session.children.get(started.child)
        state = result.status if result is not None else "at work" if child is not None else "cut off"
        steps = f" · step {child.state.step}" if child is not None else ""
        name = f"{started.task}: " if started.task else ""
        lines.append(f"{'  ' * depth}{started.child}  {state}{steps}  {name}{started.brief.objective}"[:160])
        if child is not None:
            lines += _tree(child, depth + 1)
    return lines


async def _steer(context: SlashContext, argument: str) -> SlashResult:
    name, _, words = argument.partition(" ")
    if not words.strip():
        raise ConfigError("/steer needs a sub-agent and words for it", fix="/agents lists them")
    session, child = _named(context, name)
    await session.send(Steer(message=user(words.strip()), to=child.state.session, by="slash"))
    return SlashResult(f"told {child.state.session}")


async def _stop(context: SlashContext, name: str) -> SlashResult:
    session, child = _named(context, name)
    await session.send(Interrupt(to=child.state.session, by="slash"))
    return SlashResult(f"stopped {child.state.session}")


def _named(context: SlashContext, name: str) -> tuple[Session, Session]:
    """The session, and the sub-agent at work that an id, its beginning or end, or the name of its task means."""
    found: dict[str, Session] = {}

    def look(session: Session) -> None:
        for started in session.state.work.children.values():
            child = session.children.get(started.child)
            if child is None:
                continue
            if name == started.task or started.child.startswith(name) or started.child.endswith(name):
                found[started.child] = child
            look(child)

    if context.session is not None and name:
        look(context.session)
    if context.session is None or len(found) != 1:
        how = f"{len(found)} sub-agents at work are" if found else "no sub-agent at work is"
        raise ConfigError(f"{how} called {name!r}", fix="/agents lists them")
    return context.session, next(iter(found.values()))
