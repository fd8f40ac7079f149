"""Who is not looking is called: by a command of their own, and by the terminal's bell."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lmagent.app.notifying import Attention, UserCall, variables
from lmagent.core import events as ev
from lmagent.core.messages import user
from lmagent.testing import ScriptedServer
from lmagent.testing.script import call, say


def typed(at: float) -> ev.InputReceived:
    return ev.InputReceived(ts=at, message=user("go"), delivery="submit")


def ended(at: float, outcome: ev.Outcome = "done", **more: object) -> ev.TurnFinished:
    return ev.TurnFinished(ts=at, outcome=outcome, answer="All done.", **more)


def asked(at: float, id: str = "a1") -> ev.ApprovalRequested:
    return ev.ApprovalRequested(id=id, ts=at, call_id="c", tool="shell", summary="shell make")


def test_who_typed_a_moment_ago_is_not_called_and_who_did_long_ago_is():
    attention = Attention(10)
    assert attention.of(typed(100)) is None
    assert attention.of(ended(105)) is None
    assert attention.of(ended(110)) == UserCall("finished", "All done.", "done")


@pytest.mark.parametrize(
    "event",
    [ended(200, "interrupted"), ended(200, "waiting", until=300.0), ended(200, cause="plan"), ev.TextDelta(text="x")],
)
def test_what_a_person_did_or_goes_on_by_itself_calls_nobody(event):
    assert Attention(0).of(event) is None


def test_an_approval_calls_also_where_it_is_a_sub_agents():
    attention = Attention(0)
    nested = ev.SubagentEvent(call_id="c", child="x", event=asked(50))
    assert attention.of(nested) == UserCall("approval", "shell make")
    assert attention.of(ev.SubagentEvent(call_id="c", child="x", event=ended(70))) is None


def test_a_models_words_reach_the_command_as_plain_variables_only():
    told = variables(UserCall("finished", "a\x1b[31m\0\n`rm -rf ~`" + "x" * 1000, "done"), "s", "t\n", Path("/w"))
    assert told["LMAGENT_TEXT"].startswith("a [31m  `rm -rf ~`x")
    assert len(told["LMAGENT_TEXT"]) == 500
    assert told["LMAGENT_TITLE"] == "t "


def run(workspace: Path, server: ScriptedServer, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "lmagent", "-w", str(workspace), "--base-url", server.base_url, "-m", "m", "go"]
    home = workspace.parent / "home"
    home.mkdir(exist_ok=True)
    keep = {name: value for name, value in os.environ.items() if not name.startswith(("LLM", "NOTIFY"))}
    return subprocess.run(
        command,
        env={**keep, "HOME": str(home), **env},
        capture_output=True,
        text=True,
        check=False,
        cwd=workspace.parent,
    )


def test_the_users_command_is_run_when_a_turn_has_ended_and_holds_nothing_up(tmp_path):
    workspace, out = tmp_path / "ws", tmp_path / "out"
    workspace.mkdir()
    line = f'echo "$LMAGENT_EVENT $LMAGENT_OUTCOME $LMAGENT_TITLE: $LMAGENT_TEXT" > {out}.new; mv {out}.new {out}'
    with ScriptedServer([call("ls", path="."), say("Here; $(touch pwned) `x`.")]) as server:
        done = run(workspace, server, NOTIFY_COMMAND=line, NOTIFY_AFTER="0")
    assert done.returncode == 0, done.stderr
    deadline = time.monotonic() + 10
    while not out.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert out.read_text() == "finished done go: Here; $(touch pwned) `x`.\n"
    assert not (workspace / "pwned").exists()


def test_a_command_that_does_not_exist_disturbs_nothing(tmp_path):
    workspace = tmp_path / "ws"
    workspace.mkdir()
    with ScriptedServer([say("Fine.")]) as server:
        done = run(workspace, server, NOTIFY_COMMAND="/no/such/program", NOTIFY_AFTER="0")
    assert (done.returncode, done.stdout) == (0, "Fine.\n")


def test_a_folder_cannot_bring_a_command_of_its_own(tmp_path):
    workspace, out = tmp_path / "ws", tmp_path / "out"
    (workspace / ".lmagent").mkdir(parents=True)
    (workspace / ".lmagent" / "config.toml").write_text(f'notify_command = "touch {out}"\nnotify_after = 0\n')
    (workspace / ".env").write_text(f"NOTIFY_COMMAND=touch {out}\n")
    with ScriptedServer([say("Fine.")]) as server:
        done = run(workspace, server)
    assert done.returncode == 0
    assert "notify_command" in done.stderr
    time.sleep(0.3)
    assert not out.exists()
