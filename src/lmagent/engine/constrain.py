"""Constrain: from a model's first failure to call on, the server makes it write valid calls, and that is remembered.

A model that calls by itself is left alone: a grammar costs it its own habits. One that sends damaged arguments, or
announces calls instead of making them, gets a schema with every request; see `ModelRequest.constrain`.
"""

from __future__ import annotations

from lmagent.core.events import CallsConstrained
from lmagent.engine.session import Session

NOTE = (
    '<replies>Each reply is one JSON object: {"tool": name, "arguments": {…}} to call a tool, or {"answer": text} once '
    "the task is done.</replies>"
)
"""What the model is told: the schema keeps it from other words, and does not tell it which ones to choose."""


async def begin(session: Session) -> None:
    """Constrain a model that is known to need it."""
    model = _model(session)
    if model and not session.state.constrained and session.wiring.traits.is_constrained(model):
        await session.record(CallsConstrained(model=model, reason="it failed to call by itself before"))


async def failed(session: Session, reason: str) -> None:
    """The model failed to call; constrain it from now on, here and in later sessions."""
    if session.state.constrained:
        return
    model = _model(session)
    session.wiring.traits.constrain(model)
    await session.record(CallsConstrained(model=model, reason=reason))


def note(session: Session) -> str:
    """For the tail; empty while the model is left alone."""
    return NOTE if session.state.constrained else ""


def _model(session: Session) -> str:
    """The model's name; who lets the server choose learns from its first reply who answered."""
    return session.state.model or session.agent.model or session.state.served_model
