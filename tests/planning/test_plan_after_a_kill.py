"""SIGKILL at every event of a run that plans, is approved, keeps todos and ticks off steps; then it is gone on with."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from crash_kit import careful
from planned import plan, use, uses
from testkit.amount import spread

from lmagent.testing import ScriptedServer
from lmagent.testing.script import call, say

VICTIM = Path(__file__).with_name("plan_victim.py")
CRASH = Path(__file__).parents[1] / "crash"
EVENTS = 64
"""Appends of the whole run, and some: the last ones kill nothing, which shows that every event was covered."""

pytestmark = [pytest.mark.crash, pytest.mark.long]

SCRIPT = [
    call("read", path="notes.txt"),
    say(plan(("a", ()), ("b", ("a",)))),
    uses(("todo_add", {"description": "one"}), ("todo_add", {"description": "two"})),
    use("plan_complete_step", step_id="a", verification_notes="saw a"),
    uses(("todo_complete", {"todo_id": "todo1"}), ("todo_complete", {"todo_id": "todo2"})),
    use("manage_tasks", action="create", tasks=[{"task_id": "x", "title": "x"}, {"task_id": "y", "title": "y"}]),
    use("manage_tasks", action="delete", task_id="y"),
    use("manage_tasks", action="complete", task_id="x"),
    use("plan_complete_step", step_id="b", verification_notes="saw b"),
    say("All done."),
]


def answer(received):
    """What the model says next, by how many of its replies stand in the conversation."""
    replies = [message for message in received.body["messages"] if message["role"] == "assistant"]
    return SCRIPT[min(len(replies), len(SCRIPT) - 1)]


def run(workspace: Path, server: ScriptedServer, kill_at: int, where: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, str(VICTIM), str(workspace), server.base_url, str(kill_at), where],
        capture_output=True,
        env={**os.environ, "HOME": str(workspace.parent), "PYTHONPATH": os.pathsep.join((str(CRASH), *sys.path))},
        cwd=workspace,
        timeout=60,
        check=False,
    )


def events_of(workspace: Path) -> list[dict]:
    (log,) = workspace.glob(".lmagent/sessions/*/events.jsonl")
    return [json.loads(line) for line in log.read_bytes().splitlines()]


@pytest.mark.parametrize(
    ("kill_at", "where"),
    spread([(number, "after") for number in range(1, EVENTS + 1)], 8)
    + spread([(number, "torn") for number in range(2, EVENTS)], 24),
)
def test_no_task_is_lost_and_none_is_there_twice(tmp_path, kill_at, where):
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "notes.txt").write_text("a note\n")
    with ScriptedServer(careful(answer), strict=True) as server:
        first = run(workspace, server, kill_at, where)
        assert first.returncode in (0, -signal.SIGKILL), first.stderr.decode()
        assert first.returncode or kill_at > EVENTS - 8, "the run is over too soon to be killed everywhere"
        second = run(workspace, server, 0, "after")
        assert second.returncode == 0, second.stderr.decode()
        assert server.prefix.breaks == [], "the prompt was not gone on with byte for byte"
    events = events_of(workspace)
    kinds = Counter(event["type"] for event in events)
    assert (kinds["plan.proposed"], kinds["plan.decided"]) == (1, 1)
    begun = [event for event in events if event["type"] == "input.received" and event["origin"]["key"]]
    assert len(begun) == 1, "the work began twice, or never"
    _check_tasks([event for event in events if event["type"] == "tasks.changed"])
    assert list(workspace.glob(".lmagent/reports/*.md")), "deep work without a report"


def _check_tasks(changes: list[dict]) -> None:
    by_call = Counter(change["call"] for change in changes if change.get("call"))
    assert set(by_call.values()) == {1}, "a call changed the tasks twice"
    tasks: dict[str, tuple[str, str]] = {}
    for change in changes:
        tasks |= {task["id"]: (task["title"], task.get("status", "pending")) for task in change.get("items", ())}
        for id in change.get("removed", ()):
            del tasks[id]
    titles = {"a": "do a", "b": "do b", "todo1": "one", "todo2": "two", "x": "x"}
    assert tasks == {id: (title, "completed") for id, title in titles.items()}
