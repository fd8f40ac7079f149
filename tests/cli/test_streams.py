"""Closed, full and odd standard streams, and a current folder that is gone: the work is done, or the fault is named."""

from __future__ import annotations

import subprocess

import pytest
from program import clear
from testkit.amount import mostly_long

from lmagent.testing import ScriptedServer
from lmagent.testing.script import call, hang, say


def shell(program, server: ScriptedServer, line: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `line` in a shell, in which "$@" is the program."""
    command = program.command("--base-url", server.base_url, *arguments)
    return subprocess.run(
        ["sh", "-c", line, "sh", *command],
        env=program.env,
        cwd=program.workspace,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("closed", mostly_long(["<&-", ">&-", "2>&-", "<&- >&- 2>&-", "2>/dev/full"], kept=2))
@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_a_closed_stream_ends_no_run(program, closed, flags):
    with ScriptedServer([call("read", path="a.txt"), say("It says alpha.")], strict=True) as server:
        run = shell(program, server, f'"$@" {closed}', "read", *flags)
        assert server.left == 0
    assert run.returncode == 0, clear(run)
    assert ("alpha" in run.stdout) == (">&-" not in closed.replace("2>&-", ""))
    assert program.events()[-1]["outcome"] == "done"


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_an_output_that_cannot_be_written_loses_no_work_and_is_1(program, flags):
    script = [call("write", path="b.txt", content="x"), say("Written.")]
    with ScriptedServer(script, strict=True) as server:
        run = shell(program, server, '"$@" >/dev/full', "write", "--permission", "auto", *flags)
    assert run.returncode == 1
    assert "standard output could not be written: No space left on device" in clear(run).splitlines()[-1]
    assert (program.workspace / "b.txt").exists()
    assert program.events()[-1]["outcome"] == "done"


@pytest.mark.parametrize("command", ["--version", "sessions list", "tool list --json", "--help"])
def test_every_command_says_that_its_output_cannot_be_written(program, command):
    with ScriptedServer([]) as server:
        run = shell(program, server, f'"$1" "$2" "$3" {command} >/dev/full')
    assert run.returncode == 1
    assert "No space left" in clear(run)


@pytest.mark.parametrize("command", ["tool list --json", "run --help", "tool list"])
def test_a_reader_that_wants_no_more_is_no_error_to_talk_about(program, command):
    with ScriptedServer([]) as server:
        run = shell(program, server, f'{{ "$1" "$2" "$3" {command}; echo "$?" >&3; }} 3>code | true; cat code')
    assert run.stderr == ""
    assert run.stdout.strip() in ("0", "141")  # 0: it had written all before the reader went away


def test_an_unbuffered_program_prints_each_line_at_once(program):
    with ScriptedServer([hang()]) as server:
        command = program.command("--base-url", server.base_url, "--debug", "hi")
        env = {**program.env, "PYTHONUNBUFFERED": "1"}
        with subprocess.Popen(command, env=env, cwd=program.workspace, stderr=subprocess.PIPE, text=True) as runs:
            try:
                assert runs.stderr is not None
                assert any("completions" in line for line in runs.stderr)
            finally:
                runs.kill()


def test_an_output_that_knows_only_ascii_gets_question_marks(program):
    with ScriptedServer([say("Fertig: äöü ✓")]) as server:
        run = program.task(server, "go", env={"PYTHONIOENCODING": "ascii"})
    assert (run.returncode, run.stdout) == (0, "Fertig: ??? ?\n"), clear(run)


def test_a_current_folder_that_was_deleted_is_named_as_the_fault(program):
    with ScriptedServer([say("hi")]) as server:
        run = shell(program, server, 'mkdir gone; cd gone; rmdir ../gone; "$@"', "hi")
        assert server.chats == []
    assert run.returncode == 1
    assert "the current folder does not exist any more" in clear(run)
    assert "lmagent -w" in run.stderr


def test_a_named_workspace_does_without_a_current_folder(program):
    with ScriptedServer([say("hello")]) as server:
        run = shell(program, server, 'mkdir gone; cd gone; rmdir ../gone; "$@"', "hi", "-w", str(program.workspace))
    assert (run.returncode, run.stdout) == (0, "hello\n"), clear(run)
