"""ChildHost: the sessions, as far as sub-agents need them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from lmagent.agents.feature import AgentBounds
from lmagent.core.events import DurableEvent
from lmagent.core.ports import Clock
from lmagent.core.workevents import SubagentStarted
from lmagent.engine.session import Session


class PromptPlace(Struct, frozen=True):
    """Where the sub-agents of a session have their prompts.

    Attributes:
        inherits: they begin with the parent's conversation, where the server keeps it.
        side_by_side: how many may be at work at once.
    """

    inherits: bool
    side_by_side: int


class ChildHost(Protocol):
    """The sessions of the program, as far as sub-agents are concerned."""

    @property
    def workspace(self) -> Path:
        """The workspace."""
        ...

    @property
    def clock(self) -> Clock:
        """Time."""
        ...

    @property
    def bounds(self) -> AgentBounds:
        """How far they may go."""
        ...

    def session(self, session: str) -> Session:
        """A session that is open here.

        Raises:
            ToolError: there is none, as where a person calls a single tool.
        """
        ...

    def events(self, session: str) -> Iterable[DurableEvent]:
        """What is on record of a session.

        Raises:
            SessionNotFound: nothing is.
        """
        ...

    async def place(self, parent: Session) -> PromptPlace:
        """Where the next sub-agent of a session has its prompt."""
        ...

    async def open(self, parent: Session, started: SubagentStarted) -> Session:
        """The sub-agent's session: the one on record, else a new one, ready for its brief.

        Raises:
            SessionBusy: somebody else has it open.
            StoreError: it cannot be read or written.
        """
        ...

    async def close(self, child: Session) -> None:
        """Release a sub-agent's session and what features hold for it."""
        ...


def depth_of(session: Session) -> int:
    """How deep a session is; a person's has 0."""
    parent = session.state.work.parent
    return parent.depth if parent is not None else 0
