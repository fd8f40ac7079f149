"""A real scheduler that kills itself with SIGKILL behind a chosen step; it ends when nothing is left to do.

    scheduler_victim.py WORKSPACE BASE_URL KILL_AT

A step is an append to a session's log or to the ledger, or a move of a task. KILL_AT 0
never kills. The number of steps is printed.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import anyio
from victim import StampArgs, stamp

from lmagent.app.options import HostOptions
from lmagent.app.runner import Runner
from lmagent.app.wiring import open_host
from lmagent.config.trust import trust
from lmagent.core.tool import Tool
from lmagent.schedule.scheduler import Scheduler

steps = 0
kill_at = int(sys.argv[3])


def stepped() -> None:
    global steps
    steps += 1
    if steps == kill_at:
        os.kill(os.getpid(), signal.SIGKILL)


class Stepping:
    """An object of which some calls are steps."""

    def __init__(self, inner, *names: str) -> None:
        self._inner, self._names = inner, names

    def __getattr__(self, name: str):
        found = getattr(self._inner, name)
        if name not in self._names:
            return found

        def called(*arguments, **more):
            result = found(*arguments, **more)
            if result is None or result:  # a look that found nothing is no step
                stepped()
            return result

        return called


class SteppingLog:
    def __init__(self, inner) -> None:
        self._inner = inner

    def __getattr__(self, name: str):
        return getattr(self._inner, name)

    async def append(self, event, *, sync: bool = False):
        stored = await self._inner.append(event, sync=sync)
        stepped()
        return stored


class SteppingStore:
    def __init__(self, inner) -> None:
        self._inner = inner

    def __getattr__(self, name: str):
        return getattr(self._inner, name)

    def create(self, session: str):
        return SteppingLog(self._inner.create(session))

    def open(self, session: str):
        return SteppingLog(self._inner.open(session))


def is_over(workspace: Path, scheduler: Scheduler) -> bool:
    """Three jobs are done, as the files say, and the queue has nothing left."""
    claimed = workspace / ".lmagent" / "inbox" / "claimed"
    lines = [log.read_bytes() for log in workspace.glob(".lmagent/sessions/*/events.jsonl")]
    done = sum(line.count(b'"outcome":"done"') for line in lines)
    ran = scheduler.ledger.path.exists() and b'"ran"' in scheduler.ledger.path.read_bytes()
    left = scheduler.dispatcher.queue or (claimed.is_dir() and os.listdir(claimed))
    return done >= 3 and ran and not left


async def main(workspace: Path, base_url: str) -> int:
    flags = {
        "llm_url": base_url,
        "permission_mode": "auto",
        "llm_model": "scripted",
        "scheduler_poll_interval": 0.1,
        "agent_data_dir": workspace.parent / "data",
    }
    trust(workspace.parent / "data", workspace)
    host = await open_host(HostOptions(workspace, flags), say=lambda text: None)
    host.toolbox.add(Tool("stamp", "Leave a mark.", StampArgs, "exec", stamp))
    host.store = SteppingStore(host.store)  # type: ignore[assignment]
    scheduler = Scheduler(Runner(host, lambda text: print(text, file=sys.stderr, flush=True)))
    ledger, inbox = scheduler.ledger, scheduler.inbox
    ledger.append = Stepping(ledger, "append").append  # type: ignore[method-assign]
    inbox._move = Stepping(inbox, "_move")._move  # type: ignore[method-assign]
    inbox.done = Stepping(inbox, "done").done  # type: ignore[method-assign]
    code = 1
    with anyio.move_on_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(scheduler.run)
            while not is_over(workspace, scheduler):  # noqa: ASYNC110 (two processes bring that about)
                await anyio.sleep(0.05)
            code = 0
            tasks.cancel_scope.cancel()
    await host.aclose()
    print(steps)
    return code


if __name__ == "__main__":
    sys.exit(anyio.run(main, Path(sys.argv[1]), sys.argv[2]))
