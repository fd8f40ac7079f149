"""A real agent process that plans, decides and works, and kills itself with SIGKILL at a chosen append to its log.

    plan_victim.py WORKSPACE BASE_URL KILL_AT WHERE

Started again with KILL_AT 0 it goes on with what the log says, as a person would: it approves, and continues the rest.
"""

from __future__ import annotations

import sys
from pathlib import Path

import anyio
from victim import KillingStore

from lmagent.app.options import HostOptions
from lmagent.app.wiring import open_host
from lmagent.core.commands import Continue, DecidePlan, SetWork, Submit
from lmagent.core.messages import user
from lmagent.engine.lane import run_until_idle
from lmagent.engine.session import Session


async def next_wish(session: Session) -> bool:
    """Send what comes next; False when there is nothing more to do."""
    state = session.state
    if state.turn_open or state.inputs or state.owes_reply:
        await session.send(Continue())
    elif state.work.proposal is not None:
        await session.send(DecidePlan(decision="approved", by="victim"))
    elif not state.turn:
        if state.work.mode != "plan":
            await session.send(SetWork(mode="plan", then="deep", by="victim"))
        await session.send(Submit(message=user("tidy up")))
    else:
        return False
    return True


async def main(workspace: str, base_url: str, kill_at: str, where: str) -> int:
    flags = {"llm_url": base_url, "permission_mode": "auto", "llm_model": "scripted"}
    host = await open_host(HostOptions(Path(workspace), flags), say=lambda text: None)
    host.store = KillingStore(host.store, int(kill_at), where)  # type: ignore[assignment]
    latest = host.latest()
    session = await host.open_session(latest) if latest else await host.new_session()
    finished = None
    while await next_wish(session):
        finished = await run_until_idle(session) or finished
    await host.aclose()
    return 0 if session.state.last_outcome == "done" else 1


if __name__ == "__main__":
    sys.exit(anyio.run(main, *sys.argv[1:5]))
