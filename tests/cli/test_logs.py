"""`--debug`, `--log-level`, and what an error that nobody foresaw leaves."""

from __future__ import annotations

import os
import stat
import sys

from lmagent.testing import ScriptedServer
from lmagent.testing.script import call, say

LOG = ".lmagent/logs/lmagent.log"
KEY = "sk-a-very-secret-key-0123456789"


def test_debug_prints_requests_by_size_and_time_and_no_content(program):
    with ScriptedServer([say("Nothing to see.")]) as server:
        run = program.task(server, "a secret task", "--debug")
    assert run.returncode == 0
    assert run.stdout == "Nothing to see.\n"
    assert "debug: POST /v1/chat/completions: " in run.stderr
    assert "status 200 after" in run.stderr
    log = (program.workspace / LOG).read_text()
    assert "bytes received after" in log
    assert "secret task" not in log
    assert "Nothing to see" not in log


def test_the_level_decides_what_is_logged_and_keys_never_are(program, monkeypatch):
    monkeypatch.setitem(program.env, "LLM_API_KEY", KEY)
    monkeypatch.setitem(program.env, "AGENT_LOG_LEVEL", "INFO")
    with ScriptedServer([call("read", path="a.txt"), say(f"The key is {KEY}.")]) as server:
        assert program.task(server, "read").returncode == 0
    path = program.workspace / LOG
    log = path.read_text()
    assert "tool read: ok in" in log
    assert "ends: done" in log
    assert "POST" not in log
    assert KEY not in log
    if sys.platform != "win32":
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_without_a_wish_nothing_is_logged(program):
    with ScriptedServer([say("Done.")]) as server:
        assert program.task(server, "do it").returncode == 0
    assert not (program.workspace / LOG).exists()


def test_a_folder_of_logs_that_is_a_link_is_not_written_through(program, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (program.workspace / ".lmagent").mkdir()
    os.symlink(elsewhere, program.workspace / ".lmagent" / "logs")
    with ScriptedServer([say("Done.")]) as server:
        assert program.task(server, "do it", "--log-level", "debug").returncode == 0
    assert list(elsewhere.iterdir()) == []
