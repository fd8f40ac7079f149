"""A program that is killed in the middle of a turn: another process resumes the session, and nothing is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from lmagent.core import events as ev
from lmagent.store.log import EVENTS
from lmagent.testing import ScriptedServer, call, say, slow
from lmagent.testing.loopback import Received
from lmagent.testing.script import Behaviour

VICTIM = Path(__file__).with_name("victim.py")
pytestmark = pytest.mark.crash


def model(received: Received) -> Behaviour:
    """Stamp a, then b, unless the conversation shows that it was done or may have been done; then end."""
    results = [str(message["content"]) for message in received.messages if message["role"] == "tool"]
    for text in ("a", "b"):
        tried = [call for message in received.messages for call in message.get("tool_calls", ())]
        made = [result for made, result in zip(tried, results, strict=True) if text in made["function"]["arguments"]]
        if not any("stamped" in result or "It may have acted" in result for result in made):
            return call("stamp", text=text)
    return say("Stamped.")


def run(workspace: Path, server: ScriptedServer, kill_at: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(VICTIM), str(workspace), server.base_url, str(kill_at), "job"],
        capture_output=True,
        text=True,
        env={**os.environ, "HOME": str(workspace.parent)},
        cwd=workspace,
        timeout=120,
        check=False,
    )


def resumed(workspace: Path, server: ScriptedServer) -> list[ev.DurableEvent]:
    """Run the program again; return the events of the session, after checking that it is whole."""
    done = run(workspace, server, 0)
    assert (done.stdout, done.stderr) == ("done\n", "")
    lines = (workspace / ".lmagent" / "sessions" / "job" / EVENTS).read_bytes().splitlines()
    events = [ev.decode(line) for line in lines]
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert isinstance(events[-1], ev.TurnFinished)
    return events


def test_a_program_that_dies_in_its_own_tool_is_resumed_and_the_call_is_not_repeated(empty_workspace):
    with ScriptedServer(model, strict=True) as server:
        assert run(empty_workspace, server, -1).returncode == -signal.SIGKILL
        events = resumed(empty_workspace, server)
        assert server.prefix.breaks == []
    assert (empty_workspace / "stamps.txt").read_text() == "a\nb\n"
    statuses = [event.status for event in events if isinstance(event, ev.ToolFinished)]
    assert statuses == ["interrupted", "ok"]
    assert len([event for event in events if isinstance(event, ev.InputReceived)]) == 1


def test_ctrl_c_interrupts_the_turn_of_a_program_without_an_event_loop(empty_workspace):
    code = "import sys; from lmagent import Agent; Agent(endpoint=sys.argv[1], model='m').run_sync('Talk')"
    asked = threading.Event()

    def answer(_: Received) -> Behaviour:
        asked.set()
        return slow(say("late"), first=60, keepalive=60)

    with ScriptedServer(answer) as server:
        program = subprocess.Popen(
            [sys.executable, "-c", code, server.base_url],
            cwd=empty_workspace,
            env={**os.environ, "HOME": str(empty_workspace.parent)},
            stderr=subprocess.PIPE,
            text=True,
        )
        assert asked.wait(60)
        program.send_signal(signal.SIGINT)
        _, errors = program.communicate(timeout=60)
    assert errors.rstrip().endswith("KeyboardInterrupt")
    (log,) = (empty_workspace / ".lmagent" / "sessions").glob(f"*/{EVENTS}")
    last = ev.decode(log.read_bytes().splitlines()[-1])
    assert isinstance(last, ev.TurnFinished)
    assert last.outcome == "interrupted"


@pytest.mark.parametrize(
    "kill_at", [5, *(pytest.param(number, marks=pytest.mark.long) for number in range(1, 24) if number != 5)]
)
def test_a_program_that_is_killed_at_any_of_its_events_is_resumed(empty_workspace, kill_at):
    with ScriptedServer(model, strict=True) as server:
        assert run(empty_workspace, server, kill_at).returncode in (-signal.SIGKILL, 0)
        assert (empty_workspace / ".lmagent" / "sessions" / "job" / EVENTS).exists()
        events = resumed(empty_workspace, server)
    stamps = (empty_workspace / "stamps.txt").read_text().split()
    assert sorted(stamps) == sorted(set(stamps))  # none was made twice
    finished = [event for event in events if isinstance(event, ev.ToolFinished)]
    assert {event.content for event in finished if event.status == "ok"} <= {f"stamped {text}" for text in stamps}
    # A program that dies between the start of a call and its end leaves an outcome that nobody knows, and says so.
    assert len(stamps) == 2 or any(event.status == "interrupted" for event in finished)
