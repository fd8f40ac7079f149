"""Constrain: from a model's first failure to call on, the server makes it write valid calls, and that is remembered.

A model that calls by itself is left alone: a grammar costs it its own habits. One that sends damaged arguments, or
announces calls instead of making them, gets a schema with every request; see `ModelRequest.constrain`. After enough
good calls it is left alone again: one slip says little of a model.
"""

from __future__ import annotations

from lmagent.core.events import CallsConstrained
from lmagent.core.model import Reply
from lmagent.engine.session import Session

NOTE = (
    '<replies>Each reply is one JSON object: {"tool": name, "arguments": {…}} to call a tool, or {"answer": text} once '
    "the task is done.</replies>"
)
"""What the model is told: the schema keeps it from other words, and does not tell it which ones to choose."""

FREE_NOTE = "<replies>From now on call tools in your own way again, and answer in plain text.</replies>"
"""What it is told when it is left alone again."""

GOOD_CALLS = 10
"""Calls in a row that could be carried out, after which a model is left alone again; twice as many each time."""


async def begin(session: Session) -> None:
    """Constrain a model that is known to need it."""
    model = _model(session)
    if model and not session.state.calling.constrained and session.wiring.traits.is_constrained(model):
        await session.record(CallsConstrained(model=model, reason="it failed to call by itself before"))


async def failed(session: Session, reason: str) -> None:
    """The model failed to call; constrain it from now on, here and in later sessions."""
    if session.state.calling.constrained:
        return
    model = _model(session)
    session.wiring.traits.constrain(model)
    await session.record(CallsConstrained(model=model, reason=reason))


async def worked(session: Session) -> None:
    """A call has its result: after enough good ones the model is left alone again, if it was not measured otherwise."""
    calling = session.state.calling
    if not calling.constrained or calling.good < GOOD_CALLS * 2 ** min(calling.times - 1, 10):
        return
    model, traits = _model(session), session.wiring.traits
    traits.free(model)
    if not traits.is_constrained(model):
        reason = f"{calling.good} calls in a row were good"
        await session.record(CallsConstrained(model=model, reason=reason, lifted=True))


def learn(session: Session, reply: Reply) -> None:
    """Remember what a reply shows about the model's chat template; see `Reply.joined`."""
    if reply.joined:
        session.wiring.traits.join(_model(session) or reply.model)


def note(session: Session) -> str:
    """For the tail; empty for a model that was always left alone."""
    if session.state.calling.constrained:
        return NOTE
    return FREE_NOTE if "replies" in session.state.notes else ""


def _model(session: Session) -> str:
    """The model's name; who lets the server choose learns from its first reply who answered."""
    return session.state.model or session.agent.model or session.state.served_model
