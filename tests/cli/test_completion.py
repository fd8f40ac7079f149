"""What a shell is offered, asked as its script asks."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from lmagent.testing import ScriptedServer
from lmagent.testing.script import say


def offered(program, line: str, **env: str) -> list[str]:
    """The words that bash is offered at the end of a line."""
    words = line.split(" ")
    asked = {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1), "_LMAGENT_COMPLETE": "bash_complete", **env}
    run = program.run(env=asked)
    assert run.stderr == ""
    return [row.partition(",")[2] for row in run.stdout.splitlines() if row]


def test_options_of_a_task_are_offered_without_a_command(program):
    assert "--permission" in offered(program, "lmagent --per")
    assert offered(program, "lmagent --permission a") == ["auto"]
    assert "--yes-plan" in offered(program, "lmagent -m x --yes")


def test_commands_are_offered_at_the_beginning_and_after_help(program):
    assert {"sessions", "server", "service", "submit", "scheduler"} >= set(offered(program, "lmagent se"))
    assert "sessions" in offered(program, "lmagent se")
    assert offered(program, "lmagent help doc") == ["doctor"]
    assert "show" in offered(program, "lmagent sessions s")


def test_ids_of_sessions_are_offered(program):
    with ScriptedServer([say("Hi.")]) as server:
        program.task(server, "hello")
    (session,) = {path.parent.name for path in program.workspace.glob(".lmagent/sessions/*/events.jsonl")}
    for line in ("lmagent --resume ", "lmagent sessions show ", "lmagent sessions rm ", "lmagent plan approve "):
        assert session in offered(program, line + session[:4])


def test_names_of_models_come_from_the_server_and_a_server_that_is_away_offers_none(program):
    with ScriptedServer([], models=["qwen-small", "qwen-large", "other"]) as server:
        assert offered(program, "lmagent -m qwen", LLM_URL=server.base_url) == ["qwen-small", "qwen-large"]
    assert offered(program, "lmagent -m qwen", LLM_URL="http://127.0.0.1:9") == []


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_the_script_of_bash_asks_the_program(program, tmp_path):
    script = program.run("completion", "bash").stdout
    folder = tmp_path / "bin"
    folder.mkdir()
    caller = folder / "lmagent"
    caller.write_text(f'#!/bin/sh\nexec {" ".join(program.command())} "$@"\n')
    caller.chmod(0o755)
    ask = 'COMP_WORDS=(lmagent --perm); COMP_CWORD=1; _lmagent_completion lmagent; echo "${COMPREPLY[@]}"'
    run = subprocess.run(
        ["bash", "-c", f"{script}\n{ask}"],
        env={**program.env, "PATH": f"{folder}:{program.env['PATH']}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.stdout.split() == ["--permission"], run.stderr
