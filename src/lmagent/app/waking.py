"""Waking: a session that waits is gone on with at its time, once, whoever comes first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lmagent.core.commands import Submit
from lmagent.core.messages import user
from lmagent.core.ports import Clock
from lmagent.engine.waits import local

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmagent.app.host import Host
    from lmagent.engine.session import Session

LOOK = 0.5
"""Seconds between two looks at the wall clock, at most: it may have been set."""


async def wake(session: Session, clock: Clock) -> bool:
    """Submit what wakes the session, if it still waits; the lane has something to do then."""
    wait = session.state.wait
    if wait is None or session.state.inputs:
        return False
    text = f"[You waited {wait.reason}. It is {local(clock.now())} now. Go on.]"
    return await session.send(Submit(message=user(text), by="scheduler", job=f"wait:{wait.id}")) is not None


async def wake_in_time(session: Session, clock: Clock) -> bool:
    """Wait for the time of a session that is open here and wake it; False where somebody went on with it before."""
    wait = session.state.wait
    while wait is not None and session.state.wait is wait and not session.closed:
        left = wait.until - clock.now()
        if left <= 0:
            return await wake(session, clock)
        await clock.sleep(min(LOOK, left))
    return False


async def scheduling_in_chat(host: Host, say: Callable[[str], None]) -> None:
    """Do what is due in the workspace beside a conversation, if the user wants that and trusts the folder.

    A cron job, a task or a session that waits may have come with a checkout; whoever only wants to talk about it has
    not asked for any of that.
    """
    from lmagent.app.entitled import may_run_jobs, waiting_for_trust
    from lmagent.core.errors import LmagentError, ungrouped

    home = host.workspace / ".lmagent"
    if not host.settings.scheduler_in_chat or host.replay is not None:
        return
    try:
        with ungrouped():
            if not may_run_jobs(host):
                if problem := waiting_for_trust(host.workspace):
                    say(problem)
                return
            while not home.is_dir():
                await host.clock.sleep(LOOK)
            from lmagent.app.scheduling import Scheduler  # opens the index

            await Scheduler(host, say).run()
    except LmagentError as error:
        say(f"the scheduler of this chat has stopped: {error}")
