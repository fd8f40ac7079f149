"""SIGKILL at every event of a session and its sub-agents; gone on with, nothing is lost and nothing runs twice."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from agents_kit import by_brief, report, use
from crash_kit import careful, run
from testkit.amount import spread
from testkit.servers.compatible import VLLMServer

from lmagent.testing import ScriptedServer
from lmagent.testing.script import call, say

EVENTS = 76
"""Appends of the whole run, and some: the last ones kill nothing, which shows that every event was covered."""

SCRIPT = {
    "": [
        call("stamp", text="main"),
        use(
            "decompose",
            manifest=[
                {"task_id": "b", "objective": "second", "depends_on": ["a"]},
                {"task_id": "a", "objective": "first", "deliverable": {"type": "file", "path": "a.txt"}},
            ],
        ),
        say("All done."),
    ],
    "first": [
        call("write", path="a.txt", content="written\n"),
        call("stamp", text="first"),
        report(summary="Wrote a.txt.", artifacts=["a.txt"]),
        say("Reported."),
    ],
    "second": [call("stamp", text="second"), report(summary="Saw it."), say("Reported.")],
}

pytestmark = [pytest.mark.crash, pytest.mark.long]


def logs_of(workspace: Path) -> dict[str, list[dict]]:
    paths = workspace.glob(".lmagent/sessions/*/events.jsonl")
    return {path.parent.name: [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]] for path in paths}


@pytest.mark.parametrize(
    ("kill_at", "where"),
    spread([(number, "torn") for number in range(1, EVENTS + 1)], 16)
    + spread([(number, "after") for number in range(1, EVENTS + 1)], 12),
)
def test_a_killed_session_with_sub_agents_goes_on_without_losing_or_repeating_anything(tmp_path, kill_at, where):
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    with ScriptedServer(careful(by_brief(SCRIPT)), strict=True) as server:
        _killed_and_continued(workspace, server, kill_at, where)


@pytest.mark.parametrize("kill_at", spread(range(2, EVENTS), 18))
def test_so_do_sub_agents_that_work_side_by_side(tmp_path, kill_at):
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    manifest = [{"task_id": "a", "objective": "first"}, {"task_id": "b", "objective": "second"}]
    script = {**SCRIPT, "": [SCRIPT[""][0], use("decompose", manifest=manifest), SCRIPT[""][2]]}
    with VLLMServer(careful(by_brief(script))) as server:
        _killed_and_continued(workspace, server, kill_at, "after")


def _killed_and_continued(workspace: Path, server: ScriptedServer, kill_at: int, where: str) -> None:
    first = run(workspace, server, kill_at, where, "do it in two parts")
    assert first.returncode in (0, -signal.SIGKILL), first.stderr.decode()
    if not any(event["type"] == "input.received" for events in logs_of(workspace).values() for event in events):
        return
    second = run(workspace, server, 0, "after", "")
    assert second.returncode == 0, second.stderr.decode()
    _check(workspace)


def _check(workspace: Path) -> None:
    logs = logs_of(workspace)
    (main,) = [events for events in logs.values() if not events[0].get("parent")]
    started = [event for event in main if event["type"] == "subagent.started"]
    finished = [event for event in main if event["type"] == "subagent.finished"]
    assert [event["task"] for event in started] == ["a", "b"], "each task once, in the order of their dependencies"
    assert sorted(event["child"] for event in finished) == sorted(event["child"] for event in started)
    assert set(logs) == {main[0]["session"], *(event["child"] for event in started)}
    marks = [line.split() for line in (workspace / "stamps.txt").read_text().splitlines()]
    assert len({mark[0] for mark in marks}) == len(marks), "a call ran twice"
    assert all(events[-1]["type"] == "turn.finished" for events in logs.values()), "a log without its end"
    for events in logs.values():
        asked = [
            part["id"]
            for event in events
            if event["type"] == "message.added"
            for part in event["message"]["parts"]
            if part["type"] == "tool_call"
        ]
        results = [event["call_id"] for event in events if event["type"] == "tool.finished"]
        assert sorted(asked) == sorted(results), "a call without exactly one result"
        done = [event for event in events if event["type"] == "tool.finished" and event["tool"] == "stamp"]
        assert {event["call_id"] for event in done if event["status"] == "ok"} <= {mark[0] for mark in marks}
    for event in finished:
        folder = workspace / ".lmagent" / "agents" / event["child"]
        assert json.loads((folder / "result.json").read_text())["status"] == event["result"]["status"]
    changes = [event for event in main if event["type"] == "files.changed" and event["tool"] == "write"]
    assert len(changes) <= 1, "a sub-agent's change is taken over once"
