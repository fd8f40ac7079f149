"""SIGKILL behind every step of a scheduler that wakes a session, does a task of the inbox and runs a cron job.

Two schedulers then do what is left, at once: nothing is lost, and nothing runs twice.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import anyio
import msgspec
import pytest
from testkit.amount import spread

from lmagent.app.options import HostOptions
from lmagent.app.wiring import open_host
from lmagent.config.trust import trust
from lmagent.core.commands import Submit
from lmagent.core.messages import user
from lmagent.engine.lane import run_until_idle
from lmagent.schedule.inbox import Inbox
from lmagent.schedule.ledger import LedgerEntry
from lmagent.testing import ScriptedServer
from lmagent.testing.script import call, say

VICTIM = Path(__file__).with_name("scheduler_victim.py")
STEPS = 58
"""Steps of the whole, and some: the last ones kill nothing, which shows that every one was covered."""

pytestmark = [pytest.mark.crash, pytest.mark.long]


def answer(received):
    """What the model says next, by how its turn stands: wait once, then leave a stamp, then end."""
    messages = received.body["messages"]
    texts = [str(message.get("content")) for message in messages if message["role"] == "user"]
    if "wait first" in texts[-1]:
        return say("WAIT: +1s: a moment")
    return say("Done.") if messages[-1]["role"] == "tool" else call("stamp", text="x")


def start(workspace: Path, server: ScriptedServer, kill_at: int) -> subprocess.Popen[str]:
    environment = {**os.environ, "HOME": str(workspace.parent), "PYTHONPATH": str(VICTIM.parent)}
    command = [sys.executable, str(VICTIM), str(workspace), server.base_url, str(kill_at)]
    return subprocess.Popen(
        command, env=environment, cwd=workspace, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


async def prepare(workspace: Path, server: ScriptedServer) -> None:
    """A session that waits, a task in the inbox, and a cron job that missed a time."""
    flags = {"llm_url": server.base_url, "llm_model": "scripted", "agent_data_dir": workspace.parent / "data"}
    trust(workspace.parent / "data", workspace)
    host = await open_host(HostOptions(workspace, flags), say=lambda _: None)
    session = await host.new_session()
    await session.send(Submit(message=user("wait first")))
    finished = await run_until_idle(session)
    assert finished is not None
    assert finished.outcome == "waiting"
    await host.aclose()
    Inbox(workspace / ".lmagent").submit("a task", time.time())
    job = {"id": "rare", "schedule": "every 300d", "timezone": "UTC", "prompt": "Report."}
    (workspace / "cron.json").write_text(json.dumps([job]))
    entry = LedgerEntry(1.0, "rare", "on", schedule="every 300d (UTC)")
    (workspace / ".lmagent" / "cron-history.jsonl").write_bytes(msgspec.json.encode(entry) + b"\n")


@pytest.mark.parametrize("kill_at", spread(range(1, STEPS + 1), 8))
def test_a_scheduler_that_is_killed_loses_nothing_and_nothing_runs_twice(tmp_path, monkeypatch, kill_at):
    monkeypatch.setenv("HOME", str(tmp_path))
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    with ScriptedServer(answer, strict=True) as server:
        anyio.run(prepare, workspace, server)
        first = start(workspace, server, kill_at)
        _, said = first.communicate(timeout=60)
        assert first.returncode in (0, -signal.SIGKILL), said
        if kill_at % 5 == 0:  # the index of the sessions may be lost as well
            for path in (workspace / ".lmagent").glob("state.db*"):
                path.unlink()
        rescuers = [start(workspace, server, 0) for _ in range(2)]
        told = [rescuer.communicate(timeout=60) for rescuer in rescuers]
        assert [rescuer.returncode for rescuer in rescuers] == [0, 0], told
    _check(workspace)
    if kill_at == STEPS:
        assert first.returncode == 0, "there are more steps than are covered"


def _check(workspace: Path) -> None:
    logs = [path.read_text().splitlines() for path in workspace.glob(".lmagent/sessions/*/events.jsonl")]
    events = [[json.loads(line) for line in lines] for lines in logs]
    origins = [event["origin"] for log in events for event in log if event["type"] == "input.received"]
    kinds = sorted(origin["kind"] for origin in origins if origin["key"])
    assert kinds == ["cron", "inbox", "wait"], "lost, or run twice"
    outcomes = [event["outcome"] for log in events for event in log if event["type"] == "turn.finished"]
    assert sorted(outcomes) == ["done", "done", "done", "waiting"]
    marks = (workspace / "stamps.txt").read_text().split("\n")[:-1]
    calls = [line.split()[0] for line in marks]
    assert len(calls) == len(set(calls)), "a call ran twice"
    entries = [json.loads(line) for line in (workspace / ".lmagent" / "cron-history.jsonl").read_text().splitlines()]
    assert sum(entry["what"] == "claimed" for entry in entries) == 1
    assert {entry["outcome"] for entry in entries if entry["what"] == "ran"} == {"done"}
    assert not os.listdir(workspace / ".lmagent" / "inbox" / "claimed")
