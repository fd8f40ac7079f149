"""`--debug`, `--log-level`, and what an error that nobody foresaw leaves."""

from __future__ import annotations

import os
import stat
import sys

from lmagent.app import logs
from lmagent.config.settings import Settings
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


def test_trace_logs_and_prints_what_is_sent_and_received_without_keys_and_escapes(program, monkeypatch):
    monkeypatch.setitem(program.env, "LLM_API_KEY", KEY)
    with ScriptedServer([say(f"The key is {KEY}, \x1b[31mred."), say("More.")]) as server:
        run = program.task(server, "a plain task", "--debug", "--log-level", "trace")
    log = (program.workspace / LOG).read_text()
    for text in (run.stderr, log):
        assert '/v1/chat/completions: sent {"' in text
        assert "a plain task" in text
        assert "/v1/models: received {" in text
        assert 'the model\'s answer: [{"type":"text","text":"The key is [redacted], ' in text
        assert KEY[:12] not in text
        assert KEY not in text
        assert "\x1b" not in text
    assert " TRACE POST" in log


def test_a_long_request_is_traced_with_its_beginning_and_its_end_and_no_part_of_a_key(tmp_path):
    logs.log_to(tmp_path / "log", Settings(log_level="trace", llm_api_key=KEY))
    try:
        half = logs.TRACED // 2
        logs.LOG.log(logs.TRACE, "begin %s%s%s end", "x" * (half - 40), KEY, "y" * (half + 100))
    finally:
        logs.log_to(None, Settings())
    log = (tmp_path / "log").read_text()
    assert len(log) < logs.TRACED + 100
    assert " TRACE begin xxx" in log
    assert log.endswith("yyy end\n")
    assert "characters …" in log
    assert KEY[:8] not in log


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
