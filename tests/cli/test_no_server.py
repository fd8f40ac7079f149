"""A task on a machine without any model server: what there is to do is said."""

from __future__ import annotations

import os
import subprocess

import pytest
from program import Program

from lmagent.providers.discovery import DEFAULT
from lmagent.providers.transport import listens
from lmagent.testing.script import status
from lmagent.testing.server import ScriptedServer

pytestmark = pytest.mark.skipif(
    any(listens(server.base_url, 0.2) for server in DEFAULT), reason="a model server of this machine would be found"
)


@pytest.mark.parametrize("option", [(), ("--json",)])
def test_a_task_without_any_server_names_what_there_is_to_do(program: Program, option: tuple[str, ...]) -> None:
    run = program.run("hello", *option)
    assert run.returncode == 1
    assert "no model server is configured, and none was found on this machine" in run.stderr
    assert all(way in run.stderr for way in ("--base-url URL", "lmagent models recommend", "lmagent demo"))


def test_on_a_terminal_it_is_said_too(program: Program) -> None:
    master, slave = os.openpty()
    with os.fdopen(master, "rb") as screen:
        process = subprocess.Popen(
            program.command("hello"), env=program.env, cwd=program.workspace, stdin=slave, stdout=slave, stderr=slave
        )
        os.close(slave)
        shown = b""
        try:
            while piece := os.read(screen.fileno(), 65536):
                shown += piece
        except OSError:  # the other end is closed
            pass
        assert process.wait(60) == 1
    assert b"none was found on this machine" in shown


def test_a_server_that_is_configured_and_fails_is_no_missing_server(program: Program) -> None:
    with ScriptedServer([status(401)]) as server:
        run = program.task(server, "hello")
    assert run.returncode == 1
    assert "none was found" not in run.stderr
