"""Children: sub-agents as sessions of the host."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from lmagent.agents.feature import BEGINNING, AgentBounds, ReportReview, delegation_tools, fence, hidden, report_tool
from lmagent.app.registry import Registry
from lmagent.core.errors import ToolError
from lmagent.core.events import SubagentStarted
from lmagent.engine.session import Session

if TYPE_CHECKING:
    from lmagent.agents.childhost import PromptPlace
    from lmagent.agents.run import ChildRunner
    from lmagent.app.host import Host

TIGHT = "4k"  # profile of windows without sub-agents: half of the free tokens would be too few for their work

NO_ROOM = "the window is too small for a sub-agent beside you. Do the work yourself."

SIDE_BY_SIDE = 4  # sub-agents of a session that work at once, if the server keeps as many prompts


def register(registry: Registry) -> None:
    """Add the tools, their rules and the user's commands for sub-agents, unless the settings switch them off."""
    if not registry.settings.enable_sub_agents:
        return
    children = Children(registry)
    agents = {agent.name: agent.description for agent in registry.agents}
    for tool in (*delegation_tools(children, lambda: children.runner, agents), report_tool(children)):
        registry.tool(tool)
    registry.fences.append(fence(children.bounds))
    registry.fences.append(lambda _, tool: NO_ROOM if tool.name in BEGINNING and registry.profile.name == TIGHT else "")
    registry.hides.append(lambda state: hidden(state, children.bounds))
    registry.hides.append(lambda _: set(BEGINNING) if registry.profile.name == TIGHT else set())
    registry.reviews.append(ReportReview())
    registry.abandon = lambda parent, call: children.runner.abandon(parent, call)
    registry.command_modules.append("lmagent.app.commands.agents")


class Children:
    """See `lmagent.agents.childhost.ChildHost`."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        settings = registry.settings
        self.bounds = AgentBounds(
            settings.agent_max_depth, settings.max_sub_agent_iterations, settings.brief_data_budget
        )

    @cached_property
    def runner(self) -> ChildRunner:
        from lmagent.agents.run import ChildRunner

        return ChildRunner(self)

    def session(self, session: str) -> Session:
        return self._registry.session(session)

    async def place(self, parent: Session) -> PromptPlace:
        """Inherit the conversation if the server keeps few prompts and half of the room stays free for the
        sub-agent."""
        from lmagent.agents.childhost import PromptPlace

        kept = await self._host.served.keeps(parent.state.model or parent.agent.model)
        if kept is None:
            depth = parent.state.work.parent.depth if parent.state.work.parent is not None else 0
            return PromptPlace(inherits=False, side_by_side=max(1, SIDE_BY_SIDE // (depth + 1)))
        state = parent.state
        room = parent.window.trigger - state.tokens(state.fixed_bytes)
        return PromptPlace(inherits=state.tokens(state.conversation_bytes) <= room // 2, side_by_side=1)

    async def open(self, parent: Session, started: SubagentStarted) -> Session:
        from lmagent.app.subagents.child_session import open_child

        return await open_child(self._host, parent, started, self.bounds, await self.place(parent))

    async def close(self, child: Session) -> None:
        await self._registry.end_session(child.state.session)
        self._host.sessions.pop(child.state.session, None)
        child.close()
        self._host.released(child.state.session)

    @property
    def _host(self) -> Host:
        if self._registry.host is None:
            raise ToolError("Sub-agents work for a session; a single call has none.")
        return self._registry.host
