"""Shares: one budget for a session and the sub-agents that work for it, watched while they work."""

from __future__ import annotations

from lmagent.core.plurals import plural
from lmagent.core.ports import Clock
from lmagent.engine.budget import steps_made, tokens_spent
from lmagent.engine.session import Session


class ChildShares:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def over(self, session: Session | None) -> str:
        """Return why a session and its sub-agents may spend no more; empty while something is left."""
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
            return f"the budget of {plural(work.budget.steps, 'step')} for this work is spent"
        if bounds.turn_tokens is not None and tokens - session.turn_tokens_before >= bounds.turn_tokens:
            return f"the turn's budget of {bounds.turn_tokens} tokens is spent"
        if bounds.turn_seconds is not None and self._clock.monotonic() - session.turn_began >= bounds.turn_seconds:
            return f"the turn's budget of {bounds.turn_seconds:g} seconds is spent"
        return ""


def _tokens(session: Session) -> int:
    return tokens_spent(session.state) + sum(map(_tokens, session.children.values()))


def _steps(session: Session) -> int:
    return steps_made(session.state) + sum(map(_steps, session.children.values()))
