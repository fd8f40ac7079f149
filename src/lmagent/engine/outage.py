"""Outage: an unattended turn waits, within its step, for a model server that cannot be reached.

In an attended turn the user sees the failure at once, and decides. A turn that a gateway continues after a restart, or
a job's turn, has no user to ask, and the server may start later than the gateway.
"""

from __future__ import annotations

from collections.abc import Callable

from lmagent.core.errors import ConnectionLost, ProviderError, Unavailable, Unreachable
from lmagent.core.events import RetryScheduled
from lmagent.core.ids import InputOrigin
from lmagent.core.live import AWAY, BACK
from lmagent.core.model import ModelEvent, ModelReply, ModelRequest, Progress, Retrying
from lmagent.engine.session import Session

PATIENCE = 86_400.0
"""Seconds for which a turn waits; then it ends as an error."""

PAUSES = (1.0, 2.0, 5.0, 15.0)
"""Seconds between two tries; the last pause repeats. A try costs an absent server nothing."""

ASKED = 60.0
"""Seconds between two tries if a server answers that the model is not available; more if it asks for more."""

LOST = 5
"""Lost connections after which the request itself is assumed to crash the server, again and again."""


def be_patient(session: Session, origin: InputOrigin, until: float) -> None:
    """Let the turn for an origin wait for its server; `until` is in Unix seconds."""
    session.patience[session.state.origin if origin.kind == "wait" else origin] = until


def waits_until(session: Session) -> float:
    """Return the Unix time until which the turn waits; 0 to fail at once. A sub-agent waits like its parent."""
    while session.above is not None:
        session = session.above
    return session.patience.get(session.state.origin, 0.0) if session.state.turn_open else 0.0


def is_outage(failure: ProviderError) -> bool:
    """Return whether the same request may succeed later: the request itself is not at fault."""
    return isinstance(failure, Unreachable | Unavailable | ConnectionLost)


def was_waited_for(session: Session, failure: ProviderError) -> bool:
    """Return whether a failure that ended a step was already retried in it."""
    return is_outage(failure) and waits_until(session) > 0


async def ask_patiently(
    session: Session, request: Callable[[], ModelRequest], show: Callable[[ModelEvent], None] = lambda event: None
) -> ModelReply | None:
    """Return the model's reply, None if the stream ended without one; in an unattended turn, wait for a lost server.

    `show` gets the events before the reply. Raises ProviderError if the request failed, or the wait took too long.
    """
    clock, tries, lost = session.wiring.clock, 0, 0
    while True:
        session.partial = []
        reply: ModelReply | None = None
        try:
            async for event in session.wiring.provider.stream(request()):
                answers = not isinstance(event, Retrying) and not (
                    isinstance(event, Progress) and event.fraction is None
                )
                if tries and answers:
                    tries = 0
                    await session.notify("info", BACK, "the model server answers again")
                if isinstance(event, ModelReply):
                    reply = event
                else:
                    show(event)
            return reply
        except ProviderError as failure:
            lost += isinstance(failure, ConnectionLost)
            left = waits_until(session) - clock.now()
            if not is_outage(failure) or lost > LOST or left <= 0:
                raise
            if not tries:
                text = f"{failure.message}; the turn waits for the model server, and continues when it answers"
                await session.notify("warning", AWAY, text, failure)
            pauses = (*PAUSES, ASKED) if isinstance(failure, Unavailable) else PAUSES
            pause = min(max(pauses[min(tries, len(pauses) - 1)], failure.retry_after or 0.0), left)
            tries += 1
            session.emit_live(RetryScheduled(reason=failure.message, attempt=tries, delay=pause))
            await clock.sleep(pause)
