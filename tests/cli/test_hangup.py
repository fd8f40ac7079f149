"""A terminal that is closed, and a program that is told to go: the turn ends in order, and nothing is left running."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from terminal import Terminal

from lmagent.testing import ScriptedServer
from lmagent.testing.script import call, say

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap: it is not installed")

MARK = "31.4159"
SCRIPT = [call("shell", command=f"echo y > x; mkdir -p made; sleep {MARK}; echo z > z"), say("Done.")]


def await_command(program) -> None:
    deadline = time.monotonic() + 30
    while not (program.workspace / "made").exists():
        assert time.monotonic() < deadline, "the command did not start"
        time.sleep(0.02)


def in_order(program) -> None:
    """The turn is recorded to its end, with what the command changed till then, and the command is gone."""
    events = program.events()
    changed = next(event for event in events if event["type"] == "files.changed")
    assert [change["path"] for change in changed["changes"]] == ["made", "x"]
    assert (events[-1]["type"], events[-1]["outcome"]) == ("turn.finished", "interrupted")
    deadline = time.monotonic() + 5
    while sleepers():
        assert time.monotonic() < deadline, "the command is still running"
        time.sleep(0.05)
    assert not (program.workspace / "z").exists()


def sleepers() -> list[str]:
    lines = list[str]()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(path.read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return [line for line in lines if line.startswith(f"sleep {MARK}")]


@pytest.mark.parametrize("flags", [(), ("--plain",)], ids=["screen", "plain"])
def test_a_closed_terminal_ends_a_conversation_in_order(program, flags):
    with ScriptedServer(SCRIPT) as server:
        terminal = Terminal(program.workspace, server.base_url, "--permission", "auto", *flags)
        try:
            terminal.wait_for("> ")
            terminal.enter("go")
            await_command(program)
            os.close(terminal._master)
            terminal._master = os.open(os.devnull, os.O_RDONLY)
            assert terminal.process.wait(timeout=20) == 128 + signal.SIGHUP
        finally:
            terminal.__exit__()
    in_order(program)


@pytest.mark.parametrize("flags", [(), ("--plain",)], ids=["screen", "plain"])
def test_a_conversation_that_is_told_to_go_ends_in_order(program, flags):
    with (
        ScriptedServer(SCRIPT) as server,
        Terminal(program.workspace, server.base_url, "--permission", "auto", *flags) as terminal,
    ):
        terminal.enter("go")
        await_command(program)
        terminal.process.terminate()
        assert terminal.ended(20) == 128 + signal.SIGTERM
    in_order(program)


def one_shot(program, server: ScriptedServer, **more) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        program.command("-w", str(program.workspace), "--base-url", server.base_url, "--permission", "auto", "go"),
        env=program.env,
        cwd=program.workspace,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        **more,
    )


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_a_hangup_ends_a_one_shot_in_order(program, number):
    with ScriptedServer(SCRIPT) as server:
        process = one_shot(program, server)
        await_command(program)
        process.send_signal(number)
        assert process.wait(timeout=20) == 130
    in_order(program)


def test_a_run_under_nohup_outlives_a_hangup(program):
    script = [call("shell", command="mkdir made; sleep 1; echo z > z"), say("Done.")]
    with ScriptedServer(script) as server:
        process = one_shot(program, server, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        await_command(program)
        process.send_signal(signal.SIGHUP)
        assert process.wait(timeout=20) == 0
    assert (program.workspace / "z").exists()
