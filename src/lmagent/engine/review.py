"""Review: what features decide about the course of a turn. The loop knows no feature; a review returns what it wants.

A review is asked after every round of calls, before a turn may end, and when its end is recorded. The first review
that wants something is followed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from lmagent.core.events import Outcome, PermissionMode, TurnFinished
from lmagent.core.tool import Tool

if TYPE_CHECKING:
    from lmagent.engine.endings import Ending
    from lmagent.engine.session import Session
    from lmagent.engine.state import SessionState
    from lmagent.engine.toolbox import Invocation


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


class Perform(Struct, frozen=True):
    """A call that lmagent makes before the turn may end; the review is asked again after it.

    Its events are in the log like those of the model's calls. Its result is not part of the conversation.

    Attributes:
        invocation: the call; its id begins with `OWN_CALL`.
        mode: the permission mode that it is judged in; None for the session's.
    """

    invocation: Invocation
    mode: PermissionMode | None = None


class Review:
    """What a feature decides; it must not raise. Each method does nothing unless a feature replaces it."""

    async def after_calls(self, session: Session) -> End | None:
        """Return how the turn ends after a round of calls; None to continue."""
        return None

    async def at_end(self, session: Session, ending: Ending, answer: str) -> End | Again | Perform | None:
        """Return what happens in place of the end that the model's last reply means; None to let it end.

        Args:
            session: the session.
            ending: what the reply means.
            answer: its whole text.
        """
        return None

    def finished(self, session: Session, event: TurnFinished) -> TurnFinished:
        """Return the end of the turn as it is to be recorded."""
        return event


Fence = Callable[["SessionState", Tool], str]
"""Why a tool may not be used in this session now, for the model; empty when it may. A fence denies, it never allows."""
