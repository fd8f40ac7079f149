"""Which tools there are: settings take some away at the start of a session, on every surface, and fail closed."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from lmagent.testing import ScriptedServer
from lmagent.testing.script import call, say


def run(workspace, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LLM", "XDG", "AGENT"))}
    return subprocess.run(
        [sys.executable, "-m", "lmagent", *arguments],
        env={**kept, "HOME": str(workspace.parent), **env},
        cwd=workspace,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def workspace(tmp_path):
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


def offered(workspace, **env: str) -> set[str]:
    return {line.split()[0] for line in run(workspace, "tool", "list", **env).stdout.splitlines()}


@pytest.mark.parametrize(
    ("variable", "gone", "left"),
    [
        ("AGENT_ENABLE_SHELL", {"shell", "jobs"}, "read"),
        ("AGENT_ENABLE_FILES", {"read", "write", "edit", "ls"}, "shell"),
        ("AGENT_ENABLE_PYEXE", {"python"}, "shell"),
        ("ENABLE_SUB_AGENTS", {"delegate"}, "shell"),
    ],
)
def test_a_switch_of_an_earlier_agent_takes_its_tools_away(workspace, variable, gone, left):
    assert gone <= offered(workspace)
    names = offered(workspace, **{variable: "false"})
    assert not gone & names
    assert left in names


def test_a_list_of_allowed_tools_is_all_that_there_is_by_the_names_of_earlier_agents_too(workspace):
    names = offered(workspace, LMAGENT_TOOLS_ALLOW="read_file, shell")
    assert {"read", "shell"} <= names <= {"read", "shell", "read_artifact", "recall", "report_result"}
    assert not offered(workspace, LMAGENT_TOOLS_ALLOW="no_such") & {"read", "shell", "write"}


def test_a_folder_may_take_tools_away_and_bring_none_back(workspace):
    (workspace / ".env").write_text("AGENT_ENABLE_SHELL=false\nAGENT_ENABLE_PYEXE=true\n")
    names = offered(workspace)
    assert "shell" not in names
    assert "python" in names
    (workspace / ".env").write_text("AGENT_ENABLE_SHELL=true\n")
    settings = workspace.parent / ".config" / "lmagent"
    settings.mkdir(parents=True)
    (settings / "config.toml").write_text("enable_shell = false\n")
    assert "shell" not in offered(workspace)


def test_a_tool_that_is_taken_away_is_neither_sent_nor_run(workspace):
    script = [call("shell", command="touch ran"), say("There is no shell.")]
    with ScriptedServer(script) as server:
        arguments = ("--permission", "auto", "--base-url", server.base_url, "run a command")
        run(workspace, *arguments, AGENT_ENABLE_SHELL="false", LMAGENT_PERMISSION_ASK="shell")
        sent = json.dumps(server.chats[0].body["tools"])
    assert '"shell"' not in sent
    assert not (workspace / "ran").exists()


def test_sampling_and_a_system_text_of_ones_own_reach_the_server(workspace):
    with ScriptedServer([say("Hello.")]) as server:
        settings = {"LLM_TEMPERATURE": "0", "LLM_TOP_P": "0.9", "LLM_SEED": "7", "LLM_PRESENCE_PENALTY": "0.5"}
        done = run(workspace, "--base-url", server.base_url, "hi", LMAGENT_SYSTEM="Answer in rhymes.", **settings)
        body = server.chats[0].body
    assert done.returncode == 0, done.stderr
    assert body["messages"][0]["content"].startswith("Answer in rhymes.")
    assert (body["temperature"], body["top_p"], body["seed"], body["presence_penalty"]) == (0, 0.9, 7, 0.5)
    assert "frequency_penalty" not in body


def test_force_docker_means_the_docker_sandbox(workspace):
    shown = run(workspace, "config", FORCE_DOCKER="true").stdout
    assert any(line.split()[:2] == ["sandbox", "docker"] for line in shown.splitlines())


def test_a_folder_of_sessions_is_imported_and_what_cannot_be_read_is_named(workspace):
    old = workspace.parent / "old"
    old.mkdir()
    line = json.dumps({"role": "user", "content": "hello", "timestamp": 1.0})
    (old / "one.jsonl").write_text(line + "\n")
    (old / "two.jsonl").write_text(line + "\n")
    (old / "broken.json").write_text("{")
    (old / "notes.txt").write_text("no session")
    done = run(workspace, "sessions", "import", str(old))
    assert done.returncode == 1
    assert done.stdout.count("→") == 2
    assert "broken.json was not imported" in done.stderr
    assert "Traceback" not in done.stderr
