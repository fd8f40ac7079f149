"""ChildHost: the sessions, as far as sub-agents need them."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from lmagent.agents.feature import AgentBounds
from lmagent.core.events import SubagentStarted
from lmagent.engine.session import Session


class PromptPlace(Struct, frozen=True):
    """How the sub-agents of a session use the server's prompt cache."""

    inherits: bool  # they begin with the parent's conversation, because the server keeps it
    side_by_side: int  # how many may work at the same time


class ChildHost(Protocol):
    @property
    def bounds(self) -> AgentBounds: ...

    def session(self, session: str) -> Session:
        """Return a session that is open here. Raises ToolError if none is, as when a user calls a single tool."""
        ...

    async def place(self, parent: Session) -> PromptPlace: ...

    async def open(self, parent: Session, started: SubagentStarted) -> Session:
        """Open the sub-agent's session, ready for its brief; create it unless its log exists."""
        ...

    async def close(self, child: Session) -> None:
        """Release a sub-agent's session and what features hold for it."""
        ...


def depth_of(session: Session) -> int:
    """Return how deep a session is nested; a user's session has 0."""
    parent = session.state.work.parent
    return parent.depth if parent is not None else 0
