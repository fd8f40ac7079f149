"""Approvals of a one-shot run on a real terminal: what is asked, and which question an answer belongs to."""

from __future__ import annotations

import re
import signal
import time
from typing import Self

import pytest
from terminal import Terminal

from lmagent.testing import ScriptedServer
from lmagent.testing.script import call, calls, say, tool

QUESTION = " mode asks before "
"""What every question has once, and nothing else."""


class OneShot(Terminal):
    """A one-shot run on a terminal."""

    def __init__(self, program, server: ScriptedServer, *arguments: str) -> None:
        super().__init__(program.workspace, "", *arguments, "--base-url", server.base_url)

    def __enter__(self) -> Self:
        return self


def of_type(program, kind: str) -> list[dict]:
    return [event for event in program.events() if event["type"] == kind]


def until(true) -> None:
    deadline = time.monotonic() + 30
    while not true() and time.monotonic() < deadline:
        time.sleep(0.02)


def test_several_approvals_are_asked_one_after_the_other_and_an_answer_belongs_to_the_question_shown(program):
    for name in "bc":
        (program.workspace / f"{name}.txt").write_text(name)
    reads = calls(*(tool("read", path=f"{name}.txt") for name in "abc"))
    asked: dict[str, bool] = {}
    with ScriptedServer([reads, say("Done.")], strict=True) as server:
        with OneShot(program, server, "read all", "--permission", "manual") as terminal:
            until(lambda: len(of_type(program, "approval.requested")) == 3)
            for number, answer in enumerate("nyn", 1):
                screen = terminal.wait_for(QUESTION, 30, times=number)
                assert screen.count(QUESTION) == number  # the next is not shown before this one is answered
                assert "a always (read)" in terminal.wait_for("Allow ", 30, times=number)
                asked[re.findall(r"(read \w\.txt) —", screen)[-1]] = answer == "y"
                terminal.enter(answer)
            assert terminal.ended(30) == 0
    summaries = {event["id"]: event["summary"] for event in of_type(program, "approval.requested")}
    resolved = {summaries[event["approval"]]: event["approved"] for event in of_type(program, "approval.resolved")}
    assert len(asked) == 3
    assert resolved == asked


def test_what_was_typed_before_the_question_stood_there_does_not_answer_it(program):
    terminals: list[OneShot] = []

    def answer(received):
        if len(server.chats) > 1:
            return say("Understood.")
        terminals[0].enter("y")
        return call("write", path="b.txt", content="x")

    with ScriptedServer(answer) as server:
        terminal = OneShot(program, server, "write")
        terminals.append(terminal)
        with terminal:
            terminal.wait_for("Allow ", 30)
            terminal.enter("n")
            assert terminal.ended(30) == 0
    assert [event["approved"] for event in of_type(program, "approval.resolved")] == [False]
    assert not (program.workspace / "b.txt").exists()


@pytest.mark.parametrize("by", ["key", "SIGINT", "SIGTERM"])
def test_one_interrupt_at_a_question_ends_the_program(program, by):
    with ScriptedServer([call("write", path="b.txt", content="x")]) as server:
        with OneShot(program, server, "write") as terminal:
            terminal.wait_for("Allow ", 30)
            if by == "key":
                terminal.type("\x03")
            else:
                terminal.process.send_signal(signal.Signals[by])
            assert terminal.ended(30) == 130
    assert program.events()[-1]["outcome"] == "interrupted"
    assert not (program.workspace / "b.txt").exists()


def test_a_question_that_a_kill_left_open_is_asked_again(program):
    with ScriptedServer([call("write", path="b.txt", content="beta\n"), say("Written.")], strict=True) as server:
        with OneShot(program, server, "write") as first:
            first.wait_for("Allow ", 30)
            first.process.kill()
            first.process.wait()
        with OneShot(program, server, "--continue") as second:
            second.wait_for("Allow ", 30)
            second.wait_for("+beta", 30)
            second.enter("y")
            second.wait_for("Written.", 30)
            second.enter("/quit")
            assert second.ended(30) == 0
    assert [event["approved"] for event in of_type(program, "approval.resolved")] == [True]
    assert (program.workspace / "b.txt").read_text() == "beta\n"


def test_words_are_a_no_that_the_model_reads_and_the_end_of_input_is_a_no(program):
    writes = [call("write", path="b.txt", content="x"), call("write", path="c.txt", content="x"), say("Understood.")]
    with ScriptedServer(writes, strict=True) as server:
        with OneShot(program, server, "write") as terminal:
            terminal.wait_for(QUESTION, 30)
            terminal.enter("put it into docs")
            terminal.wait_for(QUESTION, 30, times=2)
            terminal.type("\x04")
            terminal.wait_for("Understood.", 30)
            terminal.ended(30)
        assert "put it into docs" in server.chats[1].body["messages"][-1]["content"]
    assert [event["approved"] for event in of_type(program, "approval.resolved")] == [False, False]
