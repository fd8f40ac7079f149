"""Review: features' decisions about the course of a turn. The loop knows no feature, only the results of reviews.

The loop calls the reviews after every round of calls, before a turn may end, and when its end is recorded. The first
result that is not None decides.
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
    """The turn continues after a text to the model.

    Attributes:
        key: the subject; at most `times` texts with this key are sent in a turn.
        otherwise: the end of the turn after that.
    """

    key: str
    text: str
    times: int
    otherwise: End


class Perform(Struct, frozen=True):
    """A call that lmagent makes before the turn may end; the review runs again after it.

    Its events are in the log like those of the model's calls, its result is not in the conversation. Its id begins with
    `OWN_CALL`; `mode` replaces the session's permission mode.
    """

    invocation: Invocation
    mode: PermissionMode | None = None


class Review:
    """Decisions of a feature; none may raise. Each method does nothing unless a feature replaces it."""

    async def after_calls(self, session: Session) -> End | None:
        """Return the end of the turn after a round of calls; None to continue."""
        return None

    async def at_end(self, session: Session, ending: Ending, answer: str) -> End | Again | Perform | None:
        """Return an alternative to the end that the model's last reply means; None to let the turn end.

        `answer` is the reply's whole text.
        """
        return None

    def finished(self, session: Session, event: TurnFinished) -> TurnFinished:
        """Return the turn's end, changed for the log."""
        return event


Fence = Callable[["SessionState", Tool], str]
"""Returns why a tool may not be used now, for the model; empty if it may. A fence denies, it never allows."""
