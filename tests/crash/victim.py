"""A real agent process that kills itself with SIGKILL at a chosen append to its log.

    victim.py WORKSPACE BASE_URL KILL_AT WHERE TASK

KILL_AT 0 never kills. WHERE: `before` the append, `torn` in the middle of its line, `after` it. An empty TASK goes on
with the newest session. Every append that has returned is acknowledged on standard output.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import anyio
import msgspec

from lmagent.app.options import HostOptions
from lmagent.app.wiring import open_host
from lmagent.core import events as ev
from lmagent.core.commands import Continue, Submit
from lmagent.core.messages import user
from lmagent.core.tool import Tool, ToolContext, ToolOutput
from lmagent.engine.lane import run_until_idle


class KillingLog:
    """A SessionLog that dies at the n-th append of this process."""

    appended = 0

    def __init__(self, inner, path: Path, kill_at: int, where: str) -> None:
        self._inner, self._path, self._kill_at, self._where = inner, path, kill_at, where

    def __getattr__(self, name: str):
        return getattr(self._inner, name)

    async def append(self, event: ev.DurableEvent, *, sync: bool = False) -> ev.DurableEvent:
        KillingLog.appended += 1
        due = KillingLog.appended == self._kill_at
        if due and self._where != "after":
            if self._where == "torn" and self._path.exists():
                line = ev.encode(event)
                with self._path.open("ab") as file:
                    file.write(line[: len(line) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        stored = await self._inner.append(event, sync=sync)
        if due:
            os.kill(os.getpid(), signal.SIGKILL)
        os.write(1, f"{stored.seq}\n".encode())
        return stored


class KillingStore:
    def __init__(self, inner, kill_at: int, where: str) -> None:
        self._inner, self._kill_at, self._where = inner, kill_at, where

    def __getattr__(self, name: str):
        return getattr(self._inner, name)

    def _wrap(self, log):
        return KillingLog(log, self._inner.root / log.session / "events.jsonl", self._kill_at, self._where)

    def create(self, session: str):
        return self._wrap(self._inner.create(session))

    def open(self, session: str):
        return self._wrap(self._inner.open(session))


class StampArgs(msgspec.Struct):
    text: str


async def stamp(arguments: StampArgs, context: ToolContext) -> ToolOutput:
    """Leave a mark that shows how often the call ran."""
    with (context.workspace / "stamps.txt").open("a") as file:
        file.write(f"{context.call} {arguments.text}\n")
    return ToolOutput(f"stamped {arguments.text}")


async def main(workspace: str, base_url: str, kill_at: str, where: str, task: str) -> int:
    flags = {"llm_url": base_url, "permission_mode": "auto", "llm_model": "scripted"}
    host = await open_host(HostOptions(Path(workspace), flags), say=lambda text: None)
    host.toolbox.add(Tool("stamp", "Leave a mark.", StampArgs, "exec", stamp))
    host.store = KillingStore(host.store, int(kill_at), where)  # type: ignore[assignment]
    if task:
        session = await host.new_session()
        await session.send(Submit(message=user(task)))
    else:
        latest = host.latest()
        assert latest is not None
        session = await host.open_session(latest)
        await session.send(Continue())
    finished = await run_until_idle(session)
    await host.aclose()
    return 0 if finished is None or finished.outcome == "done" else 1


if __name__ == "__main__":
    sys.exit(anyio.run(main, *sys.argv[1:6]))
