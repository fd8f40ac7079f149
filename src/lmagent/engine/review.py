"""Review: what features have to say about how a turn goes on. The loop stays one; they bring reasons to go on or end.

A review is asked after every round of calls and before a turn may end. It reads the session's state; what it wants
told or done it returns. The first that says something is followed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from lmagent.core.events import Outcome
from lmagent.core.tool import Tool

if TYPE_CHECKING:
    from lmagent.engine.endings import Ending
    from lmagent.engine.session import Session
    from lmagent.engine.state import SessionState


class End(Struct, frozen=True):
    """How a turn ends; the fields are those of `turn.finished`."""

    outcome: Outcome
    cause: str = ""
    reason: str = ""
    answer: str = ""
    fix: str = ""
    terminal: str = ""
    until: float = 0.0


class Again(Struct, frozen=True):
    """The turn is not over: the model is told why, and goes on.

    Attributes:
        key: what it is about; told `times` in a turn at most.
        text: for the model.
        times: how often.
        otherwise: how the turn ends after that.
    """

    key: str
    text: str
    times: int
    otherwise: End


class Review(Protocol):
    """One feature's say. It must not raise; what it cannot judge it passes over."""

    async def after_calls(self, session: Session) -> End | None:
        """A round of calls is over; an End ends the turn."""
        ...

    async def at_end(self, session: Session, ending: Ending, answer: str) -> End | Again | None:
        """The model gives its last word.

        Args:
            session: the session.
            ending: what that word means.
            answer: all of it.
        """
        ...


Fence = Callable[["SessionState", Tool], str]
"""Why a tool may not be used in this session now, for the model; empty when it may. A fence denies, it never allows."""
