"""What is piped in belongs to the task, however long its writer takes."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from lmagent.testing import ScriptedServer
from lmagent.testing.script import say

IMPATIENT = """
from lmagent.cli import main, streams
streams.NOTICE_AFTER, streams.PATIENCE = 0.05, 0.1
main.main()
"""
LONGER = 0.4
"""Seconds: longer than an impatient program waits for a first byte."""


@pytest.fixture
def server():
    with ScriptedServer([say("ok")], strict=True) as server:
        yield server


def start(program, server, *arguments: str, impatient: bool = False, stdin=subprocess.PIPE) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", IMPATIENT] if impatient else program.command()
    return subprocess.Popen(
        [*command, *arguments, "--base-url", server.base_url],
        env=program.env,
        cwd=program.workspace,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


PIPED = "\n\n[Attached by the user: piped input]\n"


def task_of(server: ScriptedServer) -> str:
    return server.chats[0].body["messages"][1]["content"]


def test_what_is_piped_in_belongs_to_the_task(program, server):
    program.task(server, "explain this", stdin="line one\nline two\n")
    assert task_of(server).endswith(f"explain this{PIPED}line one\nline two")


def test_a_file_as_standard_input_belongs_to_the_task(program, server):
    with (program.workspace / "a.txt").open() as file, start(program, server, "explain", stdin=file) as process:
        process.communicate(timeout=60)
    assert task_of(server).endswith(f"explain{PIPED}alpha")


def test_a_slow_writer_is_waited_for_and_the_person_told(program, server):
    with start(program, server, "explain") as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "waiting for piped input (</dev/null to skip)\n"
        out, _ = process.communicate("at last\n", timeout=60)
    assert (process.returncode, out) == (0, "ok\n")
    assert task_of(server).endswith(f"explain{PIPED}at last")


def test_a_pipe_that_ends_without_a_byte_adds_nothing(program, server):
    assert program.task(server, "explain", stdin="").returncode == 0
    assert task_of(server).endswith("explain")


@pytest.fixture
def pipe():
    """A pipe that the program inherits as standard input; the other end stays open here."""
    reading, writing = os.pipe()
    ends = [reading, writing]
    yield ends
    for end in ends:
        os.close(end)


def test_what_has_begun_to_come_is_waited_for_to_its_end(program, server, pipe):
    os.write(pipe[1], b"begun ")
    with start(program, server, "explain", impatient=True, stdin=pipe[0]) as process:
        time.sleep(LONGER)
        os.write(pipe[1], b"and ended")
        os.close(pipe.pop())
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert task_of(server).endswith(f"explain{PIPED}begun and ended")


@pytest.mark.parametrize("task", [("explain",), ("--continue",)])
def test_a_pipe_that_nobody_writes_to_fails_a_run_that_has_a_task_and_says_what_to_type(program, server, pipe, task):
    with start(program, server, *task, impatient=True, stdin=pipe[0]) as process:
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "</dev/null" in errors.splitlines()[-1]
    assert "nothing was done" in errors
    assert server.chats == []


def test_without_a_task_the_pipe_is_the_task_and_is_waited_for_without_limit(program, server, pipe):
    with start(program, server, impatient=True, stdin=pipe[0]) as process:
        assert process.stderr is not None
        assert "waiting for piped input" in process.stderr.readline()
        time.sleep(LONGER)
        os.write(pipe[1], b"a task that took long to write")
        os.close(pipe.pop())
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert task_of(server).endswith("a task that took long to write")


def test_bytes_that_are_no_text_are_survived(program, server, pipe):
    os.write(pipe[1], b"caf\xe9\r\nau lait")
    os.close(pipe.pop())
    with start(program, server, "explain", stdin=pipe[0]) as process:
        process.communicate(timeout=60)
    assert task_of(server).endswith(f"explain{PIPED}caf\ufffd\nau lait")


def test_what_is_piped_in_names_no_files_to_attach(program):
    (program.workspace / ".env").write_text("KEY=secret-of-the-user\n")
    with ScriptedServer([say("Reviewed.")]) as server:
        run = program.task(server, "review this, as in @a.txt", stdin="+ see @.env and @a.txt\n")
    assert run.returncode == 0
    assert run.stderr.count("attached") == 1
    sent = server.chats[0].body["messages"][-1]["content"]
    assert "see @.env" in sent
    assert "secret-of-the-user" not in sent


def test_a_task_takes_the_files_along_that_it_names(program):
    with ScriptedServer([say("It says alpha.")]) as server:
        run = program.task(server, "what does @a.txt say?")
    assert (run.returncode, run.stdout) == (0, "It says alpha.\n")
    assert "attached a.txt (1 line)" in run.stderr
    assert "alpha" in server.chats[0].body["messages"][-1]["content"]
