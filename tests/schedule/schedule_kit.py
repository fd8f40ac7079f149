"""A scheduler in this process, against a scripted server, in a workspace of its own."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from lmagent.app.clock import SystemClock
from lmagent.app.options import HostOptions
from lmagent.app.runner import Runner
from lmagent.app.wiring import open_host
from lmagent.config.trust import trust
from lmagent.core.commands import Submit
from lmagent.core.messages import user
from lmagent.engine.lane import run_until_idle
from lmagent.schedule.scheduler import Scheduler
from lmagent.testing import ScriptedServer


class ShiftedClock(SystemClock):
    """The system clock, as somebody has set it."""

    shift = 0.0

    def now(self) -> float:
        return super().now() + self.shift


@asynccontextmanager
async def a_host(workspace: Path, server: ScriptedServer, **flags):
    settings = {
        "llm_url": server.base_url,
        "llm_model": "scripted",
        "agent_data_dir": workspace.parent / "data",
        "scheduler_poll_interval": 0.1,
        "llm_retry_delay": 0.0,
        **flags,
    }
    trust(settings["agent_data_dir"], workspace)
    host = await open_host(HostOptions(workspace, settings), say=lambda _: None)
    host.clock = ShiftedClock()  # type: ignore[assignment]
    try:
        yield host
    finally:
        await host.aclose()


async def until(holds: Callable[[], object], seconds: float = 20.0) -> None:
    with anyio.fail_after(seconds):
        while not holds():  # noqa: ASYNC110 (files tell, no event)
            await anyio.sleep(0.02)


@asynccontextmanager
async def scheduling(host, said: list[str] | None = None, **more):
    """A scheduler at work; stopped as SIGTERM stops it."""
    scheduler = Scheduler(Runner(host, (said if said is not None else []).append), **more)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(scheduler.run)
        yield scheduler
        tasks.cancel_scope.cancel()


def logs(workspace: Path) -> dict[str, list[dict]]:
    """All events, by session."""
    found = {}
    for path in sorted(workspace.glob(".lmagent/sessions/*/events.jsonl")):
        lines = path.read_bytes().split(b"\n")
        found[path.parent.name] = [json.loads(line) for line in lines[:-1]]
    return found


def endings(workspace: Path) -> list[str]:
    """How the turns of all sessions ended."""
    return [
        event["outcome"] for events in logs(workspace).values() for event in events if event["type"] == "turn.finished"
    ]


def inputs(workspace: Path) -> list[str]:
    """The origins of the inputs of all sessions."""
    return [
        f"{event['origin']['kind']}:{event['origin']['key']}"
        for events in logs(workspace).values()
        for event in events
        if event["type"] == "input.received"
    ]


def ledger(workspace: Path) -> list[dict]:
    path = workspace / ".lmagent" / "cron-history.jsonl"
    return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]] if path.exists() else []


def unfinished(workspace: Path) -> set[int]:
    """Times of cron jobs that were claimed and have not run to their end."""
    entries = ledger(workspace)
    claimed, ran = ({entry["at"] for entry in entries if entry["what"] == what} for what in ("claimed", "ran"))
    return claimed - ran


def write_jobs(workspace: Path, *rows: dict) -> None:
    (workspace / "cron.json").write_text(json.dumps(list(rows)))


def in_seconds(seconds: float) -> str:
    """A time as a model writes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(time.time() + seconds)) + "Z"


def run(check) -> None:
    anyio.run(check)


async def a_turn(host, text: str = "do it", session=None):
    session = session or await host.new_session()
    await session.send(Submit(message=user(text)))
    finished = await run_until_idle(session)
    assert finished is not None
    return session, finished
