"""Lane: carry out the work a session was asked for, one turn after the other.

A session is serial; two sessions are two lanes. An interrupt, from a command or from outside, ends the running turn and
still leaves a log from which the session can continue.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio

from lmagent.core.events import BY_USER, TurnFinished
from lmagent.engine import recovery, turn
from lmagent.engine.session import Session


async def run_until_idle(session: Session, *, resumable: bool = False) -> TurnFinished | None:
    """Run the requested turns one after the other, and return the end of the last one.

    A turn that an earlier process left open is closed as interrupted when new input comes, and is continued after
    `Continue`. If `resumable`, a turn that the end of this program cuts off stays open for the next process.
    """
    last: TurnFinished | None = None
    while not session.closed:
        if session.wants_resume:
            session.wants_resume = False
            unread = session.state.waiting("submit", "queue", "steer")
            if session.state.turn_open or (session.state.owes_reply and not unread):
                last = await _guarded(session, turn.resume, resumable) or last
                continue
        if session.state.waiting("submit", "queue", "steer"):
            await _close_leftover(session)
            last = await _guarded(session, turn.begin, resumable) or last
        elif session.wants_compaction is not None:
            await _close_leftover(session)
            await _guarded(session, turn.compact_only, resumable)
        else:
            break
    return last


async def _close_leftover(session: Session) -> None:
    if session.state.turn_open:
        await recovery.close_turn(session, "crash", "the program ended in the middle of this turn")


async def _guarded(
    session: Session, work: Callable[[Session], Awaitable[TurnFinished | None]], resumable: bool
) -> TurnFinished | None:
    outcome: TurnFinished | None = None
    with anyio.CancelScope() as scope:
        session.scope = scope
        try:
            outcome = await work(session)
        except anyio.get_cancelled_exc_class():
            if session.state.turn_open and (scope.cancel_called or not resumable):
                with anyio.CancelScope(shield=True):
                    outcome = await recovery.close_turn(session, "interrupt", BY_USER)
            raise
        finally:
            session.scope = None
    return outcome
