"""SIGKILL at every event of a real run, before, inside and after the write; then the session is gone on with."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from crash_kit import run
from testkit.amount import spread

from lmagent.testing import ScriptedServer
from lmagent.testing.script import call, calls, say, tool

EVENTS = 34
"""Appends of the whole run, and some: the last ones kill nothing, which shows that every event was covered."""

pytestmark = [pytest.mark.crash, pytest.mark.long]


def script():
    return [
        calls(tool("read", path="notes.txt"), tool("ls")),
        call("stamp", text="one"),
        calls(tool("stamp", text="two"), tool("read", path="notes.txt"), tool("stamp", text="three")),
        call("write", path="out.txt", content="written\n"),
        say("All done."),
    ]


def answer(received):
    """What the model says next, by how many of its replies stand in the conversation: a repeat is answered alike."""
    replies = [message for message in received.body["messages"] if message["role"] == "assistant"]
    return script()[min(len(replies), 4)]


def events_of(workspace: Path) -> tuple[list[bytes], list[dict]]:
    logs = list(workspace.glob(".lmagent/sessions/*/events.jsonl"))
    lines = [line for log in logs for line in log.read_bytes().split(b"\n")[:-1]]
    return lines, [json.loads(line) for line in lines]


@pytest.mark.parametrize(
    ("kill_at", "where"),
    spread([(number, "after") for number in range(1, EVENTS + 1)], 3)
    + spread([(number, where) for number in range(1, EVENTS + 1) for where in ("before", "torn")], 10),
)
def test_nothing_is_lost_and_nothing_runs_twice(tmp_path, kill_at, where):
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "notes.txt").write_text("a note\n")
    with ScriptedServer(answer, strict=True) as server:
        first = run(workspace, server, kill_at, where, "leave three stamps and write out.txt")
        killed = first.returncode == -signal.SIGKILL
        assert killed or first.returncode == 0, first.stderr.decode()
        before, known = events_of(workspace)
        acknowledged = [int(seq) for seq in first.stdout.split()]
        if not any(event["type"] == "input.received" for event in known):
            assert len(acknowledged) <= 1, "an input was accepted and is gone"
            return
        second = run(workspace, server, 0, "after", "")
        assert second.returncode == 0, second.stderr.decode()
        lines, events = events_of(workspace)
        assert lines[: len(before)] == before, "a line that was on disk has changed"
        assert {event["seq"] for event in events} >= set(acknowledged), "an acknowledged event is gone"
        assert server.prefix.breaks == [], "the prompt was not gone on with byte for byte"
    _check_effects(workspace, events)


def _check_effects(workspace: Path, events: list[dict]) -> None:
    stamps = workspace / "stamps.txt"
    marks = [line.split()[0] for line in stamps.read_text().splitlines()] if stamps.exists() else []
    assert len(marks) == len(set(marks)), "a call ran twice"
    asked = [
        part["id"]
        for event in events
        if event["type"] == "message.added"
        for part in event["message"]["parts"]
        if part["type"] == "tool_call"
    ]
    results = [event["call_id"] for event in events if event["type"] == "tool.finished"]
    assert sorted(asked) == sorted(results), "a call without exactly one result"
    done = {
        e["call_id"] for e in events if e["type"] == "tool.finished" and e["tool"] == "stamp" and e["status"] == "ok"
    }
    assert done <= set(marks), "a result of something that did not happen"
    assert events[-1]["type"] == "turn.finished"
