"""What a shell is offered, asked as its script asks."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
from pathlib import Path

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


@pytest.fixture
def called(program, tmp_path) -> dict[str, str]:
    """An environment in which shells find the program by its name."""
    folder = tmp_path / "bin"
    folder.mkdir()
    caller = folder / "lmagent"
    caller.write_text(f'#!/bin/sh\nexec {" ".join(program.command())} "$@"\n')
    caller.chmod(0o755)
    return {**program.env, "PATH": f"{folder}:{program.env['PATH']}"}


def shell(*command: str, env: dict[str, str], cwd: Path) -> str:
    run = subprocess.run(command, env=env, cwd=cwd, capture_output=True, text=True, timeout=60, check=False)
    assert run.stdout, run.stderr
    return run.stdout


@pytest.mark.skipif(shutil.which("bash") is None, reason="the completion of bash was NOT tested: bash is not installed")
def test_the_script_of_bash_asks_the_program(program, called):
    script = program.run("completion", "bash").stdout
    ask = 'COMP_WORDS=(lmagent --perm); COMP_CWORD=1; _lmagent_completion lmagent; echo "${COMPREPLY[@]}"'
    assert shell("bash", "-c", f"{script}\n{ask}", env=called, cwd=program.workspace).split() == ["--permission"]


@pytest.mark.skipif(shutil.which("fish") is None, reason="the completion of fish was NOT tested: fish is not installed")
def test_the_script_of_fish_asks_the_program_and_shows_titles_whole(program, called):
    with ScriptedServer([say("Hi.")]) as server:
        program.task(server, "hello, you, there")
    script = program.run("completion", "fish").stdout

    def offered_by_fish(line: str) -> str:
        return shell("fish", "-N", "-c", f"{script}\ncomplete -C '{line}'", env=called, cwd=program.workspace)

    assert offered_by_fish("lmagent --perm").startswith("--permission\t")
    assert offered_by_fish("lmagent --permission a") == "auto\n"
    assert offered_by_fish("lmagent sessions show ").endswith("\thello, you, there\n")


@pytest.mark.skipif(shutil.which("zsh") is None, reason="the completion of zsh was NOT tested: zsh is not installed")
@pytest.mark.parametrize(
    ("line", "shown"),
    [("lmagent --perm", "ission"), ("lmagent --permission ", "manual"), ("lmagent sessions s", "how ")],
)
def test_the_script_of_zsh_completes_at_a_prompt(program, called, line, shown):
    (program.home / "script.zsh").write_text(program.run("completion", "zsh").stdout)
    master, slave = pty.openpty()
    env = {**called, "TERM": "dumb", "ZDOTDIR": str(program.home)}
    process = subprocess.Popen(
        ["zsh", "-f", "-i"],
        env=env,
        cwd=program.workspace,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
    )
    os.close(slave)
    screen = b""

    def wait_for(text: str) -> None:
        nonlocal screen
        while text.encode() not in screen:
            assert select.select([master], [], [], 60)[0], screen
            screen += os.read(master, 65536)
        screen = b""

    try:
        os.write(master, b"autoload -U compinit; compinit -u -D; source ~/script.zsh; echo rea''dy\r")
        wait_for("\nready")
        os.write(master, line.encode() + b"\t")
        wait_for(shown)
    finally:
        process.kill()
        process.wait()
        os.close(master)
