"""Outage: a turn that nobody sits in front of waits for a model server that cannot be had, within its step.

A person who has just typed something is told at once instead, and decides. What a gateway goes on with after a restart,
and what a job runs, has nobody to tell: the server may only come up later than we do.
"""

from __future__ import annotations

from lmagent.core.errors import ConnectionLost, ProviderError, Unavailable, Unreachable
from lmagent.core.events import Notice, RetryScheduled
from lmagent.core.live import AWAY, BACK
from lmagent.core.model import ModelEvent, Progress, Retrying
from lmagent.core.ports import WAKING
from lmagent.engine.session import Session

PATIENCE = 86_400.0
"""Seconds for which a turn waits; then it ends as an error."""

PAUSES = (1.0, 2.0, 5.0, 15.0)
"""Seconds between two tries; the last one repeats. A try costs a server that is not there nothing."""

ASKED = 60.0
"""Seconds between two tries where somebody answers that the model cannot be had; more, if they ask for more."""

LOST = 5
"""Connections that are lost over one request before it is believed that the server dies of it: it begins to answer
first, and is away for a while then, each time."""


def be_patient(session: Session, job: str, until: float) -> None:
    """Let the turn that is for a job wait.

    Args:
        session: the session.
        job: of the turn's input.
        until: Unix seconds.
    """
    session.patience[session.state.job if job.startswith(WAKING) else job] = until


def waits_until(session: Session) -> float:
    """Until when the running turn waits, Unix seconds; 0 for not at all. Sub-agents wait as who they work for."""
    while session.above is not None:
        session = session.above
    return session.patience.get(session.state.job, 0.0) if session.state.turn_open else 0.0


def is_outage(failure: ProviderError) -> bool:
    """Whether the same request may be answered once a server is there, or has time; it is not at fault itself."""
    return isinstance(failure, Unreachable | Unavailable | ConnectionLost)


def was_waited_for(session: Session, failure: ProviderError) -> bool:
    """Whether a failure that has ended a step had its tries in there already."""
    return is_outage(failure) and waits_until(session) > 0


class Outage:
    """One step's wait for the server.

    Args:
        session: whose turn it is.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._tries = self._lost = 0

    async def sit_out(self, failure: ProviderError) -> None:
        """Wait a while before the next try, for everybody to see.

        Raises:
            ProviderError: the failure itself, where it is none of reaching the server, or is not waited for.
        """
        session = self._session
        clock = session.wiring.clock
        self._lost += isinstance(failure, ConnectionLost)
        left = waits_until(session) - clock.now()
        if not is_outage(failure) or self._lost > LOST or left <= 0:
            raise failure
        if not self._tries:
            text = f"{failure.message}; the turn waits for the model server, and goes on when it answers"
            await session.record(
                Notice(level="warning", code=AWAY, text=text, fix=failure.fix, terminal=failure.terminal)
            )
        pauses = (*PAUSES, ASKED) if isinstance(failure, Unavailable) else PAUSES
        pause = min(max(pauses[min(self._tries, len(pauses) - 1)], failure.retry_after or 0.0), left)
        self._tries += 1
        session.emit_live(RetryScheduled(reason=failure.message, attempt=self._tries, delay=pause))
        await clock.sleep(pause)

    async def notice(self, event: ModelEvent) -> None:
        """Tell that the server answers, once it does: what waits for its turn here, or tries again, is none."""
        answers = not isinstance(event, Retrying) and not (isinstance(event, Progress) and event.fraction is None)
        if self._tries and answers:
            self._tries = 0
            await self._session.record(Notice(level="info", code=BACK, text="the model server answers again"))
