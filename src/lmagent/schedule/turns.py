"""Turns: what the sessions' logs say about the turns of jobs, and the input that wakes a waiting session."""

from __future__ import annotations

from typing import Literal

from lmagent.core import events as ev
from lmagent.core.commands import Submit
from lmagent.core.errors import SessionNotFound
from lmagent.core.ids import InputOrigin
from lmagent.core.messages import user
from lmagent.core.ports import Clock
from lmagent.engine.endings import local
from lmagent.engine.session import SCHEDULER, Session
from lmagent.store.index import Unattended
from lmagent.store.port import SessionStore


def turn_of(store: SessionStore, session: str, origin: InputOrigin) -> ev.TurnFinished | Literal["open", ""]:
    """Return the end of a job's turn; "open" while it has not ended, and "" before it began."""
    input, turn, begun = "", 0, 0
    for event in store.read(session):
        match event:
            case ev.InputReceived() if event.origin == origin:
                input = event.id
            case ev.TurnStarted() if input and not turn:
                begun = event.turn
            case ev.MessageAdded() if input and event.input == input:
                turn = event.turn
            case ev.TurnFinished() if turn and event.turn == turn:
                return event
            case ev.TurnFinished() if event.turn == begun:
                begun = 0
            case _:
                pass
    return "open" if turn or begun else ""


def input_of(store: SessionStore, session: str, origin: InputOrigin) -> ev.InputReceived | None:
    """Return the input of an origin; None if the session or the input does not exist."""
    try:
        events = store.read(session)
    except SessionNotFound:
        return None
    return next((event for event in events if isinstance(event, ev.InputReceived) and event.origin == origin), None)


def unattended(store: SessionStore, *, free: bool = False) -> list[Unattended]:
    """Return the sessions with work that may be left; if `free`, only those that no living process has open."""
    with store.index() as index:
        index.refresh()
        rows = index.unattended()
        return [row for row in rows if not index.source.is_held(row.session)] if free else rows


async def wake(session: Session, clock: Clock) -> bool:
    """Submit the input that wakes a session, if it still waits; return whether it did."""
    wait = session.state.wait
    if wait is None or session.state.inputs:
        return False
    text = f"[You waited {wait.reason}. It is {local(clock.now())} now. Go on.]"
    return await session.send(Submit(message=user(text), by=SCHEDULER, origin=InputOrigin("wait", wait.id))) is not None
