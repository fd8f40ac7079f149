"""Budget: whether a turn may take another step."""

from __future__ import annotations

from msgspec.structs import replace

from lmagent.core.agent import TurnLimits
from lmagent.core.plurals import plural
from lmagent.core.work import Budget
from lmagent.engine.review import End
from lmagent.engine.session import Session
from lmagent.engine.state import SessionState

DEEP_STEPS = 200
"""Model calls of a turn of deep work without a budget, where the settings do not set a lower bound."""


def limits(session: Session) -> TurnLimits:
    """Return the limits of a turn. Deep work has the steps of its budget, in one turn or in many."""
    own, work = session.agent.limits, session.state.work
    bound = {"bounded": own.bounded, "deep": DEEP_STEPS}.get(work.mode)
    if work.mode == "deep" and work.budget.steps is not None:
        unset = own.steps == TurnLimits().steps
        bound = work.budget.steps if unset else min(own.steps, work.budget.steps)
        return replace(own, steps=bound)
    return own if bound is None or bound >= own.steps else replace(own, steps=bound)


def tokens_spent(state: SessionState) -> int:
    """Return prompt and reply tokens so far, with those of sub-agents."""
    own, children = state.usage, state.work.child_usage
    return own.prompt_tokens + own.completion_tokens + children.prompt_tokens + children.completion_tokens


def steps_made(state: SessionState) -> int:
    """Return model calls so far, with those of sub-agents."""
    return state.steps_total + state.work.child_steps


def used(state: SessionState) -> Budget:
    """Return steps and tokens since the work's budget was set, with those of sub-agents."""
    work = state.work
    return Budget(steps_made(state) - work.steps_before, tokens_spent(state) - work.spent_before)


def at_work(session: Session) -> tuple[int, int]:
    """Return steps and tokens so far of the sub-agents that run now."""
    steps = tokens = 0
    for child in session.children.values():
        below = at_work(child)
        steps += steps_made(child.state) + below[0]
        tokens += tokens_spent(child.state) + below[1]
    return steps, tokens


def over(session: Session, *, steps: int) -> End | None:
    """Return the turn's end if a limit is reached; `steps` are the turn's model calls so far."""
    bounds, below = limits(session), at_work(session)
    spent = tokens_spent(session.state) + below[1]
    if (end := over_total(session.state, *below)) is not None:
        return end
    if steps >= bounds.steps:
        reason = f"the limit of {plural(bounds.steps, 'step')} is reached"
        typed = "continue with --continue, or raise MAX_ITERATIONS"
        return End("limit", "iterations", reason, terminal=typed)
    if bounds.turn_tokens is not None and spent - session.turn_tokens_before >= bounds.turn_tokens:
        return End("limit", "tokens", f"the turn's budget of {bounds.turn_tokens} tokens is spent")
    if bounds.session_tokens is not None and spent >= bounds.session_tokens:
        return End("limit", "tokens", f"the session's budget of {bounds.session_tokens} tokens is spent")
    seconds = session.wiring.clock.monotonic() - session.turn_began
    if bounds.turn_seconds is not None and seconds >= bounds.turn_seconds:
        return End("limit", "seconds", f"the turn's budget of {bounds.turn_seconds:g} seconds is spent")
    return None


def over_total(state: SessionState, steps_below: int = 0, tokens_below: int = 0) -> End | None:
    """Return the turn's end if the budget of the whole work, over all its turns, is spent.

    `steps_below` and `tokens_below` are those of sub-agents at work.
    """
    work = state.work
    total, steps = work.budget, steps_made(state) - work.steps_before + steps_below
    tokens = tokens_spent(state) - work.spent_before + tokens_below
    fix = "give it more with /deep more, or end this way of working with /work normal"
    if total.tokens is not None:
        left, following = total.tokens - tokens, state.estimate_tokens()
        if left <= 0:
            return End("limit", "tokens", f"the budget of {total.tokens:,} tokens for this work is spent", fix=fix)
        if following > left:
            reason = (
                f"{left:,} of the {total.tokens:,} tokens for this work are left, and the next call takes {following:,}"
            )
            return End("limit", "tokens", reason, fix=fix)
    if total.steps is not None and steps >= total.steps:
        reason = f"the budget of {plural(total.steps, 'step')} for this work is spent"
        return End("limit", "iterations", reason, fix=fix)
    return None
