"""An error that nobody foresaw is one sentence on every surface, and its traceback is in the log."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lmagent.testing import ScriptedServer
from lmagent.testing.script import say

sys.path.append(str(Path(__file__).parents[1] / "gateway"))

from gateway_kit import gateway, until

LOG = ".lmagent/logs/lmagent.log"

PLUGIN = """\
def note(session):
    raise RuntimeError("a note that fails")

def register(registry):
    registry.session_notes.append(note)
"""

BAD_COMMAND = """\
def register(registry):
    registry.command_modules.append("no_such_module")
"""

BAD_TOOL = """\
def register(registry):
    registry.tools["bad"] = None
"""


@pytest.fixture
def plugin(tmp_path):
    """Installs a plugin; returns the PYTHONPATH by which it is found."""

    def install(code: str) -> str:
        site = tmp_path / "site-packages"
        info = site / "faulty-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: faulty\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text("[lmagent.plugins]\nfaulty = faulty_plugin:register\n")
        (site / "faulty_plugin.py").write_text(code)
        return str(site)

    return install


def test_a_single_task_names_the_way_back_and_the_log(program, plugin):
    env = {"PYTHONPATH": plugin(PLUGIN)}
    with ScriptedServer([say("Done.")]) as server:
        run = program.task(server, "do it", env=env)
    assert run.returncode == 1
    assert "Traceback" not in run.stderr
    assert "lmagent: unexpected error: RuntimeError: a note that fails" in run.stderr
    assert "nothing that was done is lost: lmagent" in run.stderr
    assert f"details: {LOG}" in run.stderr
    assert 'raise RuntimeError("a note that fails")' in (program.workspace / LOG).read_text()


def test_a_conversation_goes_on(program, plugin):
    env = {"PYTHONPATH": plugin(PLUGIN)}
    with ScriptedServer([say("Done.")]) as server:
        run = program.run("chat", "--plain", "--base-url", server.base_url, stdin="hello\n/help\n/quit\n", env=env)
    assert run.returncode == 0, run.stderr
    said = run.stdout + run.stderr
    assert "unexpected error: RuntimeError: a note that fails" in said
    assert "nothing that was done is lost: lmagent --resume " in said
    assert f"details: {LOG}" in said
    assert said.count("unexpected error") == 1
    assert "Traceback" not in said
    assert said.index("unexpected error") < said.index("/sessions")


def test_the_gateway_answers_and_serves_on(tmp_path, plugin):
    with gateway(tmp_path, [say("Done.")], PYTHONPATH=plugin(BAD_COMMAND)) as running:
        answer = running.ask("GET", "/api/slash")
        assert answer.status == 500
        error = answer.json["error"]
        assert error["message"] == "unexpected error: ModuleNotFoundError"
        assert error["fix"] == f"nothing that was done is lost; details: {LOG}"
        assert running.ask("GET", "/api/sessions").status == 200
        until(lambda: any("GET /api/slash: unexpected error: ModuleNotFoundError" in line for line in running.said))
        assert not any("Traceback" in line for line in running.said)
        assert "Traceback (most recent call last)" in (running.workspace / LOG).read_text()


def test_a_turn_in_the_gateway_names_the_way_back_and_the_log(tmp_path, plugin):
    with gateway(tmp_path, [say("Done.")], PYTHONPATH=plugin(PLUGIN)) as running:
        session = running.ask("POST", "/api/sessions", {}).json["session"]
        message = {"role": "user", "parts": [{"type": "text", "text": "hello"}]}
        command = {"type": "submit", "message": message}
        assert running.ask("POST", f"/api/sessions/{session}/commands", command).status < 300
        until(lambda: any(f"lost: lmagent --resume {session}; details: {LOG}" in line for line in running.said))
        assert running.ask("GET", "/api/sessions").status == 200
        assert not any("Traceback" in line for line in running.said)
        assert 'raise RuntimeError("a note that fails")' in (running.workspace / LOG).read_text()


def test_the_scheduler_says_it_and_schedules_on(program, plugin):
    env = {"PYTHONPATH": plugin(PLUGIN)}
    program.trust()
    assert program.run("submit", "a task").returncode == 0
    with ScriptedServer([say("Done.")]) as server:
        process = subprocess.Popen(
            program.command("scheduler", "--base-url", server.base_url),
            env={**program.env, **env},
            cwd=program.workspace,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if "unexpected error: RuntimeError: a note that fails" in line:
                    break
            else:
                raise AssertionError("the scheduler ended")
            assert f"details: {LOG}" in process.stdout.readline()
            assert process.poll() is None
        finally:
            process.terminate()
            process.communicate(timeout=30)
    assert 'raise RuntimeError("a note that fails")' in (program.workspace / LOG).read_text()


def test_a_command_without_a_session_says_it_too(program, plugin):
    run = program.run("tool", "list", env={"PYTHONPATH": plugin(BAD_TOOL)})
    assert run.returncode == 1
    assert "Traceback" not in run.stderr
    assert "lmagent: unexpected error: " in run.stderr
    assert f"→ nothing that was done is lost: lmagent sessions; details: {LOG}" in run.stderr
    assert "Traceback (most recent call last)" in (program.workspace / LOG).read_text()


def test_a_folder_named_by_an_option_has_the_log(program, plugin, tmp_path):
    run = program.run("tool", "list", "-w", str(program.workspace), env={"PYTHONPATH": plugin(BAD_TOOL)}, cwd=tmp_path)
    assert f"details: {program.workspace / LOG}" in run.stderr
    assert (program.workspace / LOG).exists()


def test_where_no_log_can_be_written_it_says_how_to_see_the_details(program, plugin):
    (program.workspace / ".lmagent").write_text("in the way")
    env = {"PYTHONPATH": plugin(BAD_TOOL)}
    run = program.run("tool", "list", env=env)
    assert "or run it with LMAGENT_DEBUG=1" in run.stderr
    run = program.run("tool", "list", env={**env, "LMAGENT_DEBUG": "1"})
    assert "Traceback (most recent call last)" in run.stderr


def test_the_model_server_whose_own_folder_is_a_file_says_it(program, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data/server").write_text("a file")
    run = program.run("server", "start", env={"AGENT_DATA_DIR": str(tmp_path / "data")})
    assert run.returncode == 1
    assert "Traceback" not in run.stderr
    assert "unexpected error: " in run.stderr
    assert "Traceback" in (program.workspace / LOG).read_text()
