"""Shares: one budget for a session and the sub-agents that work for it, watched while they work."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from lmagent.core.events import DurableEvent, StepFinished, SubagentFinished, TurnStarted
from lmagent.core.model import Usage
from lmagent.core.ports import Clock
from lmagent.engine.budget import steps_made, tokens_spent
from lmagent.engine.session import Session


class Shares:
    """What is left for the sub-agents of a session.

    Args:
        read: the events of a session.
        clock: time.
    """

    def __init__(self, read: Callable[[str], Iterable[DurableEvent]], clock: Clock) -> None:
        self._read = read
        self._clock = clock
        self._began: dict[tuple[str, int], tuple[int, float]] = {}

    def over(self, session: Session | None) -> str:
        """Why neither a session nor those that it works for may spend more; empty where something is left."""
        while session is not None:
            if reason := self._over(session):
                return reason
            session = session.above
        return ""

    def _over(self, session: Session) -> str:
        bounds, work = session.agent.limits, session.state.work
        tokens, steps = _tokens(session), _steps(session)
        if bounds.session_tokens is not None and tokens >= bounds.session_tokens:
            return f"the session's budget of {bounds.session_tokens} tokens is spent"
        if work.budget.tokens is not None and tokens - work.spent_before >= work.budget.tokens:
            return f"the budget of {work.budget.tokens:,} tokens for this work is spent"
        if work.budget.steps is not None and steps - work.steps_before >= work.budget.steps:
            return f"the budget of {work.budget.steps} steps for this work is spent"
        if bounds.turn_tokens is None and bounds.turn_seconds is None:
            return ""
        before, began = self._turn(session)
        if bounds.turn_tokens is not None and tokens - before >= bounds.turn_tokens:
            return f"the turn's budget of {bounds.turn_tokens} tokens is spent"
        if bounds.turn_seconds is not None and self._clock.now() - began >= bounds.turn_seconds:
            return f"the turn's budget of {bounds.turn_seconds:g} seconds is spent"
        return ""

    def _turn(self, session: Session) -> tuple[int, float]:
        """Tokens that were spent before the session's turn began, and when that was."""
        key = (session.state.session, session.state.turn)
        if key not in self._began:
            spent, found = 0, (0, 0.0)
            for event in self._read(session.state.session):
                match event:
                    case TurnStarted():
                        found = (spent, event.ts)
                    case StepFinished(usage=usage) | SubagentFinished(usage=usage):
                        spent += _sum(usage)
                    case _:
                        pass
            self._began[key] = found
        return self._began[key]


def _sum(usage: Usage) -> int:
    return usage.prompt_tokens + usage.completion_tokens


def _tokens(session: Session) -> int:
    """What a session and its sub-agents have spent, those at work included."""
    return tokens_spent(session.state) + sum(map(_tokens, session.children.values()))


def _steps(session: Session) -> int:
    return steps_made(session.state) + sum(map(_steps, session.children.values()))
