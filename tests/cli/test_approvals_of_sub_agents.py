"""Approvals that a sub-agent needs, asked on the terminal of the session that it works for."""

from __future__ import annotations

import json

import pytest
from terminal import Terminal
from test_approvals import QUESTION, OneShot

from lmagent.testing import ScriptedServer
from lmagent.testing.script import call, say


def use(name: str, **arguments: object):
    return call("use_tool", name=name, arguments=arguments)


def script(received):
    """The main session delegates; its sub-agent writes two files and reports."""
    messages = received.body["messages"]
    told = max((at for at, item in enumerate(messages) if "Objective: " in str(item["content"])), default=-1)
    done = sum(item["role"] == "assistant" for item in messages[told + 1 :])
    if told < 0:
        return use("delegate", objective="write it") if done == 0 else say("All done.")
    replies = [call("write", path="b.txt", content="beta\n"), call("write", path="c.txt", content="gamma\n")]
    return [*replies, use("report_result", status="ok", summary="Written.")][min(done, 2)]


def nested(workspace, kind: str) -> list[dict]:
    lines = [
        line for log in workspace.glob(".lmagent/sessions/*/events.jsonl") for line in log.read_text().splitlines()
    ]
    return [event for event in map(json.loads, lines) if event["type"] == kind]


@pytest.mark.parametrize("answer", ["y", "a", "n"])
def test_a_one_shot_run_asks_for_its_sub_agent(program, answer):
    with ScriptedServer(script) as server:
        with OneShot(program, server, "have it written") as terminal:
            screen = terminal.wait_for(QUESTION, 30)
            assert "sub-agent: write b.txt" in screen
            assert "+beta" in screen
            terminal.enter(answer)
            if answer != "a":
                terminal.wait_for(QUESTION, 30, times=2)
                terminal.enter("n")
            terminal.wait_for("All done.", 30)
            assert terminal.ended(30) == 0
    assert (program.workspace / "b.txt").exists() == (answer in "ya")
    assert (program.workspace / "c.txt").exists() == (answer == "a")
    asked = nested(program.workspace, "approval.requested")
    assert len(asked) == (1 if answer == "a" else 2)


def test_an_interrupt_at_a_sub_agents_question_ends_the_program_and_both_logs(program):
    with ScriptedServer(script) as server:
        with OneShot(program, server, "have it written") as terminal:
            terminal.wait_for(QUESTION, 30)
            terminal.type("\x03")
            assert terminal.ended(30) == 130
    ends = nested(program.workspace, "turn.finished")
    assert [event["outcome"] for event in ends] == ["interrupted"] * 2
    assert not (program.workspace / "b.txt").exists()


def test_a_conversation_asks_for_its_sub_agent_too(program):
    with ScriptedServer(script) as server:
        with Terminal(program.workspace, server.base_url, "--permission", "normal") as terminal:
            terminal.enter("have it written")
            terminal.wait_for("Allow write?", 30)
            terminal.enter("y")
            terminal.wait_for("c.txt", 30)
            terminal.enter("n")
            terminal.wait_for("All done.", 30)
            assert "sub-agent ok: Written." in terminal.screen
            terminal.enter("/agents")
            terminal.wait_for("  write it", 30)
    assert (program.workspace / "b.txt").exists()
    assert not (program.workspace / "c.txt").exists()
