"""The show of long work: parts that depend on each other, a wait, and a nightly run that was missed, done right by
schedulers that are killed again and again."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from lmagent.config.paths import data_dir
from lmagent.config.trust import trust
from lmagent.schedule.ledger import Ledger, LedgerEntry
from lmagent.testing import ScriptedServer
from lmagent.testing.loopback import Received
from lmagent.testing.script import Behaviour, call, say, slow

pytestmark = pytest.mark.crash

TASK = "Build the catalogue, wait for the index, then sum it up."
MANIFEST = [
    {
        "task_id": "print",
        "objective": "print",
        "depends_on": ["sort"],
        "deliverable": {"type": "file", "path": "c.txt"},
    },
    {
        "task_id": "sort",
        "objective": "sort",
        "depends_on": ["collect"],
        "deliverable": {"type": "file", "path": "b.txt"},
    },
    {"task_id": "collect", "objective": "collect", "deliverable": {"type": "file", "path": "a.txt"}},
]
FILES = {
    "collect": ("a.txt", "pear apple\n"),
    "sort": ("b.txt", "apple pear\n"),
    "print": ("c.txt", "* apple\n* pear\n"),
}
KILLS = 10
"""Each of a scheduler that may be at work, just beginning, or asleep."""


def use(name: str, **arguments: Any) -> Behaviour:
    return call("use_tool", name=name, arguments=arguments)


def model(received: Received) -> Behaviour:
    """Answer by the conversation alone. A call that did not run, or whose end is not known, is made again."""
    messages = received.body["messages"]
    text = [str(message["content"]) for message in messages]
    briefed = max((at for at, words in enumerate(text) if "Objective: " in words), default=0)
    objective = text[briefed].rpartition("Objective: ")[2].partition("\n")[0].strip() if briefed else ""
    mine = messages[briefed + 1 :]
    results = [str(message["content"]) for message in mine if message["role"] == "tool"]
    done = sum("Interrupted:" not in result and "Not run:" not in result for result in results)
    if objective:
        path, content = FILES[objective]
        steps = [
            call("write", path=path, content=content),
            use("report_result", status="ok", summary=f"Wrote {path}.", artifacts=[path]),
        ]
        return slow(steps[done], first=0.4) if done < len(steps) else say("Reported.")
    if any("Nightly" in words for words in text):
        return (
            slow(call("write", path="nightly.txt", content="good night\n"), first=0.4)
            if not done
            else say("Good night.")
        )
    if done == 0:
        return use("decompose", manifest=MANIFEST)
    if not any(
        "WAIT:" in words for words, message in zip(text, messages, strict=True) if message["role"] == "assistant"
    ):
        return say("WAIT: +3s: the index")
    return slow(call("write", path="sum.txt", content="2 fruits\n"), first=0.4) if done == 1 else say("Summed up.")


def start(workspace: Path, server: ScriptedServer, log: Path) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "HOME": str(workspace.parent), "LLM_MODEL": "scripted", "LLM_RETRY_DELAY": "0"}
    command = [sys.executable, "-m", "lmagent", "scheduler", "-w", str(workspace), "--base-url", server.base_url]
    with log.open("ab") as output:
        return subprocess.Popen([*command, "--permission", "auto"], env=environment, stdout=output, stderr=output)


def logs_of(workspace: Path) -> list[list[dict[str, Any]]]:
    paths = workspace.glob(".lmagent/sessions/*/events.jsonl")
    return [[json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]] for path in paths]


def ledger_of(workspace: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (workspace / ".lmagent" / "cron-history.jsonl").read_text().splitlines()]


def is_over(workspace: Path) -> bool:
    """Nothing is claimed any more, and all turns have ended."""
    inbox = workspace / ".lmagent" / "inbox"
    if list(inbox.glob("*.task")) or list(inbox.glob("claimed/*")):
        return False
    ends = [[event["outcome"] for event in log if event["type"] == "turn.finished"][-1:] for log in logs_of(workspace)]
    return len(ends) == 5 and set(map(str, ends)) == {"['done']"} and ledger_of(workspace)[-1]["what"] == "ran"


def nightly_was_missed(workspace: Path) -> None:
    """A job of two hours ago whose times count since three days ago: nothing ran in between."""
    now = time.time()
    schedule = f"daily {datetime.now(UTC) - timedelta(hours=2):%H:%M}"
    job = {"id": "nightly", "schedule": schedule, "timezone": "UTC", "prompt": "Nightly: say good night."}
    (workspace / "cron.json").write_text(json.dumps([job]))
    since = now - 3 * 86400
    Ledger(workspace / ".lmagent", time.time).append(LedgerEntry(since, "nightly", "on", schedule=f"{schedule} (UTC)"))


@pytest.mark.parametrize(("seed", "slots"), [(1, 1), pytest.param(2, 8, marks=pytest.mark.long)])
def test_a_task_of_several_parts_a_wait_and_a_missed_night_come_out_right_under_random_kills(tmp_path, seed, slots):
    chance = random.Random(seed)
    workspace, log = tmp_path / "a work space ä", tmp_path / "out.txt"
    workspace.mkdir()
    trust(data_dir({"HOME": str(tmp_path)}), workspace)
    nightly_was_missed(workspace)
    environment = {**os.environ, "HOME": str(tmp_path)}
    submit = [sys.executable, "-m", "lmagent", "submit", "-w", str(workspace), TASK]
    subprocess.run(submit, env=environment, check=True, capture_output=True)
    with ScriptedServer(model, strict=True, slots=slots) as server:
        running: list[subprocess.Popen[bytes] | None] = [start(workspace, server, log), None]
        try:
            for _ in range(KILLS):
                time.sleep(chance.uniform(0.5, 1.7))
                victim = chance.randrange(2)
                if (process := running[victim]) is not None:
                    process.kill()
                    process.wait()
                running[victim] = start(workspace, server, log) if chance.random() < 0.8 else None
            running[0] = running[0] or start(workspace, server, log)
            end = time.monotonic() + 30
            while not is_over(workspace) and time.monotonic() < end:
                time.sleep(0.1)
            time.sleep(1)
        finally:
            for process in filter(None, running):
                process.terminate()
            for process in filter(None, running):
                process.wait(30)
        assert server.objections == []
    assert is_over(workspace), log.read_text()
    _check(workspace)


def _origins(log: list[dict]) -> list[str]:
    inputs = (event["origin"] for event in log if event["type"] == "input.received")
    return [f"{origin['kind']}:{origin['key']}" for origin in inputs]


def _check(workspace: Path) -> None:
    files = {**dict(FILES.values()), "nightly.txt": "good night\n", "sum.txt": "2 fruits\n"}
    assert {name: (workspace / name).read_text() for name in files} == files
    logs = logs_of(workspace)
    assert {path.name for path in (workspace / ".lmagent" / "sessions").iterdir()} == {
        log[0]["session"] for log in logs
    }
    (main,) = [log for log in logs if any(origin.startswith("inbox:") for origin in _origins(log))]
    assert [event["task"] for event in main if event["type"] == "subagent.started"] == ["collect", "sort", "print"]
    assert [event["result"]["status"] for event in main if event["type"] == "subagent.finished"] == ["ok"] * 3
    assert [event["outcome"] for event in main if event["type"] == "turn.finished"] == ["waiting", "done"]
    waited, woken = (
        next(event for event in main if event["type"] == "turn.finished"),
        next(event for event in main if event["type"] == "input.received" and event["origin"]["kind"] == "wait"),
    )
    assert woken["origin"]["key"] == waited["id"]
    assert woken["ts"] >= waited["until"]
    kinds = Counter(origin.partition(":")[0] for log in logs for origin in _origins(log))
    assert {kind: kinds[kind] for kind in ("inbox", "wait", "cron")} == {"inbox": 1, "wait": 1, "cron": 1}
    assert [entry["what"] for entry in ledger_of(workspace)] == ["on", "missed", "claimed", "ran"]
    assert ledger_of(workspace)[-1]["outcome"] == "done"
    ends = [[event["outcome"] for event in log if event["type"] == "turn.finished"] for log in logs]
    assert sorted(ends) == [["done"]] * 4 + [["waiting", "done"]]
    assert not list((workspace / ".lmagent" / "inbox").glob("failed/*"))
