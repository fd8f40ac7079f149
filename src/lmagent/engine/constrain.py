"""Constrain: after a model's first failure to call, the server makes it write valid calls, in later sessions too.

A model that calls by itself gets no grammar, which would cost it its own habits. A model that sends damaged arguments,
or announces calls instead of making them, gets a schema with each request; see `ModelRequest.constrain`. After enough
good calls the schema is lifted: one slip says little of a model.
"""

from __future__ import annotations

from lmagent.core.events import CallsConstrained
from lmagent.core.model import ModelReply
from lmagent.engine.session import Session

NOTE = (
    '<replies>Each reply is one JSON object: {"tool": name, "arguments": {…}} to call a tool, or {"answer": text} once '
    "the task is done.</replies>"
)
"""The schema keeps the model from other output, but does not show it which forms it may choose."""

FREE_NOTE = "<replies>From now on call tools in your own way again, and answer in plain text.</replies>"
GOOD_CALLS = 10
"""Good calls in a row after which the schema is lifted; twice as many each time."""


async def begin(session: Session) -> None:
    """Constrain a model that is known to need it."""
    model = _model(session)
    if model and not session.state.calling.constrained and session.wiring.traits.is_constrained(model):
        await session.record(CallsConstrained(model=model, reason="it failed to call by itself before"))


async def failed(session: Session, reason: str) -> None:
    """Constrain the model from now on, here and in later sessions."""
    if session.state.calling.constrained:
        return
    model = _model(session)
    session.wiring.traits.constrain(model)
    await session.record(CallsConstrained(model=model, reason=reason))


async def worked(session: Session) -> None:
    """Lift the schema after enough good calls, unless measurements say that the model needs it."""
    calling = session.state.calling
    if not calling.constrained or calling.good < GOOD_CALLS * 2 ** min(calling.times - 1, 10):
        return
    model, traits = _model(session), session.wiring.traits
    traits.free(model)
    if not traits.is_constrained(model):
        reason = f"{calling.good} calls in a row were good"
        await session.record(CallsConstrained(model=model, reason=reason, lifted=True))


def learn(session: Session, reply: ModelReply) -> None:
    """Remember the quirk of the model's chat template that a reply shows; see `Reply.joined`."""
    if reply.joined:
        session.wiring.traits.join(_model(session) or reply.model)


def note(session: Session) -> str:
    """Return the note for the tail; empty for a model that was never constrained."""
    if session.state.calling.constrained:
        return NOTE
    return FREE_NOTE if "replies" in session.state.notes else ""


def _model(session: Session) -> str:
    """Return the model's name; if the server chose the model, its first reply names it."""
    return session.state.model or session.agent.model or session.state.served_model
