"""Two schedulers that are killed and started anew at random, over tasks, waits and a job that is due each second."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from testkit.amount import spread

from lmagent.config.paths import data_dir
from lmagent.config.trust import trust
from lmagent.schedule.inbox import Inbox
from lmagent.testing import ScriptedServer
from lmagent.testing.script import call, say, slow

pytestmark = [pytest.mark.crash, pytest.mark.long]

TASKS = 12


def answer(received):
    """Read the note, wait a second, read it again, and end."""
    messages = received.body["messages"]
    results = sum(message["role"] == "tool" for message in messages)
    waited = any("WAIT:" in str(message.get("content")) for message in messages if message["role"] == "assistant")
    if results == 0:
        return slow(call("read", path="note.txt"), first=0.1)
    if "Tick." not in str(messages) and not waited:
        return say("WAIT: +1s: a moment")
    return say("Done.")


def start(workspace: Path, server: ScriptedServer) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "HOME": str(workspace.parent), "LLM_MODEL": "scripted", "LLM_RETRY_DELAY": "0"}
    command = [sys.executable, "-m", "lmagent", "scheduler", "-w", str(workspace), "--base-url", server.base_url]
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)


def events_of(workspace: Path) -> list[list[dict]]:
    logs = workspace.glob(".lmagent/sessions/*/events.jsonl")
    return [[json.loads(line) for line in log.read_bytes().split(b"\n")[:-1]] for log in logs]


def outcomes(workspace: Path, kind: str) -> Counter[str]:
    """How the turns ended of sessions that began with a job of that kind."""
    return Counter(
        event["outcome"]
        for log in events_of(workspace)
        if any(event["origin"]["kind"] == kind for event in log if event["type"] == "input.received")
        for event in log
        if event["type"] == "turn.finished"
    )


def is_over(workspace: Path) -> bool:
    return outcomes(workspace, "inbox")["done"] == TASKS and outcomes(workspace, "cron")["done"] > 1


def ledger(workspace: Path) -> list[dict]:
    lines = (workspace / ".lmagent" / "cron-history.jsonl").read_bytes().split(b"\n")[:-1]
    return [json.loads(line) for line in lines]


def is_settled(workspace: Path) -> bool:
    """No job begins any more, and all that had begun is done."""
    entries = ledger(workspace)
    claimed, ran = ({entry["at"] for entry in entries if entry["what"] == what} for what in ("claimed", "ran"))
    return claimed == ran and any(entry["what"] == "off" for entry in entries)


@pytest.mark.parametrize("seed", spread([1, 2], 2))
def test_everything_is_done_once(tmp_path, seed):
    chance = random.Random(seed)
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    trust(data_dir({"HOME": str(workspace.parent)}), workspace)
    (workspace / "note.txt").write_text("a note\n")
    (workspace / "cron.json").write_text(json.dumps([{"id": "tick", "schedule": "every 1s", "prompt": "Tick."}]))
    inbox = Inbox(workspace / ".lmagent")
    with ScriptedServer(answer, strict=True, slots=64) as server:
        running = [start(workspace, server) for _ in range(2)]
        try:
            for number in range(TASKS):
                inbox.submit(f"task {number}", time.time())
                time.sleep(chance.uniform(0.2, 1.2))
                victim = chance.randrange(2)
                running[victim].kill()
                running[victim].wait()
                if number == TASKS // 2:
                    (workspace / ".lmagent" / "state.db").unlink(missing_ok=True)
                running[victim] = start(workspace, server)
            end = time.monotonic() + 90
            while not is_over(workspace) and time.monotonic() < end:
                time.sleep(0.1)
            (workspace / "cron.json").write_text("[]")
            while not is_settled(workspace) and time.monotonic() < end:
                time.sleep(0.1)
        finally:
            for process in running:
                process.terminate()
            for process in running:
                process.wait(30)
        assert server.objections == []
    assert is_settled(workspace)
    assert outcomes(workspace, "inbox") == {"waiting": TASKS, "done": TASKS}
    inputs = (event["origin"] for log in events_of(workspace) for event in log if event["type"] == "input.received")
    jobs = [f"{origin['kind']}:{origin['key']}" for origin in inputs]
    assert len(jobs) == len(set(jobs)), "a job ran twice"
    assert Counter(job.partition(":")[0] for job in jobs)["wait"] == TASKS
    assert set(outcomes(workspace, "cron")) == {"done"}
    entries = ledger(workspace)
    claimed = [entry["at"] for entry in entries if entry["what"] == "claimed"]
    assert len(claimed) == len(set(claimed))
    assert {entry["at"] for entry in entries if entry["what"] == "ran"} == set(claimed)
    assert {f"cron:tick:{at}" for at in claimed} == {job for job in jobs if job.startswith("cron:")}
