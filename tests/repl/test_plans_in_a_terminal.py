"""Plans and tasks in the REPL."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from terminal import Terminal

from lmagent.testing import ScriptedServer
from lmagent.testing.script import call, say

PLAN = {
    "title": "Copy it",
    "goal": "b.txt is like a.txt",
    "steps": [
        {
            "id": "1",
            "description": "look at a.txt <!-- and its links -->",
            "verification": "read it",
            "dependencies": [],
        }
    ],
}
QUESTION = "Approve the plan?"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    (folder / "a.txt").write_text("alpha\n")
    return folder


def done():
    return call("use_tool", name="plan_complete_step", arguments={"step_id": "1", "verification_notes": "seen"})


@pytest.mark.parametrize("plain", [(), ("--plain",)])
def test_a_plan_is_made_revised_and_approved_by_what_is_typed(workspace, plain):
    second = {**PLAN, "title": "Copy it again"}
    with ScriptedServer(
        [say(json.dumps(PLAN)), say(json.dumps(second)), done(), say("Looked.")], strict=True
    ) as server:
        with Terminal(workspace, server.base_url, *plain) as terminal:
            terminal.enter("/plan copy a.txt")
            terminal.wait_for(QUESTION, 30)
            terminal.wait_for("<!-- and its links -->", 30)
            assert '"steps"' not in terminal.screen
            terminal.enter("another title")
            terminal.wait_for("Copy it again", 30)
            terminal.wait_for("the model plans anew", 30)
            terminal.enter("/plan show")
            terminal.wait_for("It waits", 30)
            terminal.enter("/plan approve")
            terminal.wait_for("Looked.", 30)
            terminal.enter("/todo")
            terminal.wait_for("1 of 1 done", 30)
            terminal.enter("quit")
            assert terminal.ended() == 0


def test_a_plan_that_waits_is_shown_to_be_read_when_its_session_is_gone_on_with(workspace):
    with ScriptedServer([say(json.dumps(PLAN))], strict=True) as server:
        for arguments in ((), ("--resume", "last")):
            with Terminal(workspace, server.base_url, *arguments) as terminal:
                if not arguments:
                    terminal.enter("/plan copy a.txt")
                terminal.wait_for(QUESTION, 30)
                terminal.wait_for("Plan: Copy it", 30)
                assert '"steps"' not in terminal.screen
                terminal.enter("/quit")
                assert terminal.ended() == 0


def test_a_rejected_plan_is_gone_and_todos_are_kept_by_hand(workspace):
    with ScriptedServer([say(json.dumps(PLAN)), say("Hello."), say("Hello.")], strict=True) as server:
        with Terminal(workspace, server.base_url) as terminal:
            terminal.enter("/plan copy a.txt")
            terminal.wait_for(QUESTION, 30)
            terminal.enter("n")
            terminal.wait_for("rejected", 30)
            terminal.enter("/todo add buy milk")
            terminal.wait_for("todo1: buy milk", 30)
            terminal.wait_for("tasks 0/1", 30)
            terminal.enter("hi")
            terminal.wait_for("Hello.", 30)
            assert "buy milk" in str(server.chats[-1].body["messages"])
            terminal.enter("/work")
            terminal.wait_for("ordinary work", 30)
            terminal.enter("/todo done nothing")
            terminal.wait_for("there is no task nothing", 30)
            terminal.enter("quit")
            assert terminal.ended() == 0
