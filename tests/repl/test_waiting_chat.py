"""A chat whose session waits, and a chat beside which jobs run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import pytest
from terminal import Terminal

from lmagent.testing import ScriptedServer
from lmagent.testing.script import say


@pytest.fixture
def workspace(tmp_path):
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


def test_a_chat_that_waits_wakes_by_itself(workspace):
    with ScriptedServer([say("WAIT: +2s: the build"), say("The build is through.")], strict=True) as server:
        with Terminal(workspace, server.base_url) as terminal:
            terminal.enter("watch the build")
            terminal.wait_for("waiting: until")
            terminal.wait_for("waiting until ")
            terminal.wait_for("The build is through.")
            terminal.enter("quit")
            assert terminal.ended() == 0
        assert server.prefix.breaks == []


def test_who_writes_before_the_time_has_the_word_and_the_wait_is_over(workspace):
    with ScriptedServer([say("WAIT: +3s: the build"), say("As you like.")], strict=True) as server:
        with Terminal(workspace, server.base_url) as terminal:
            terminal.enter("watch the build")
            terminal.wait_for("waiting: until")
            terminal.enter("never mind")
            terminal.wait_for("As you like.")
            time.sleep(3.5)
            terminal.enter("quit")
            assert terminal.ended() == 0
        assert len(server.chats) == 2


def test_a_session_that_waits_and_is_resumed_late_wakes_at_once(workspace):
    with ScriptedServer([say("WAIT: +1s: a moment"), say("Here I am.")], strict=True) as server:
        with Terminal(workspace, server.base_url) as terminal:
            terminal.enter("wait a moment")
            terminal.wait_for("waiting: until")
            terminal.enter("quit")
            terminal.ended()
        time.sleep(1)
        (log,) = workspace.glob(".lmagent/sessions/*/events.jsonl")
        with Terminal(workspace, server.base_url, "--resume", log.parent.name) as terminal:
            terminal.wait_for("Here I am.")


def a_job(workspace):
    (workspace / "cron.json").write_text(json.dumps([{"id": "tick", "schedule": "every 1s", "prompt": "Tick."}]))


def test_a_chat_does_what_is_due_in_a_folder_that_is_trusted(workspace):
    a_job(workspace)
    environment = {**os.environ, "HOME": str(workspace.parent)}
    command = [sys.executable, "-m", "lmagent", "config", "trust", "-w", str(workspace)]
    subprocess.run(command, env=environment, check=True, capture_output=True)
    (workspace / ".lmagent").mkdir(exist_ok=True)
    with ScriptedServer(lambda _: say("Tock."), strict=True) as server:
        with Terminal(workspace, server.base_url) as terminal:
            terminal.wait_for("cron tick: due")
            terminal.wait_for(": done")


def test_a_chat_runs_nothing_that_came_with_a_folder_that_nobody_vouched_for(workspace):
    a_job(workspace)
    with ScriptedServer(lambda _: say("Tock."), strict=True) as server:
        with Terminal(workspace, server.base_url) as terminal:
            terminal.wait_for("wait until you trust it: lmagent config trust")
            terminal.enter("hello")
            terminal.wait_for("Tock.")
            time.sleep(1.5)
        assert len(server.chats) == 1
