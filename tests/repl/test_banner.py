"""The first lines of a conversation."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path

import pytest
from terminal import Terminal
from testkit.servers.lmstudio import LMStudioServer

from lmagent.testing.script import say

HINT = "Type a task. /help lists the commands, Ctrl+C twice leaves."


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap: it is not installed")
@pytest.mark.parametrize("how", [(), ("--plain",)])
def test_three_lines_name_version_and_folder_server_model_and_window_mode_and_sandbox(workspace, how):
    with LMStudioServer(lambda _: say("Hi."), window=8192, maximum=131072, loaded=True) as server:
        with Terminal(workspace, server.base_url, "-m", "", *how) as terminal:
            mode, server_line = "mode normal · sandbox bubblewrap", "LM Studio at"
            begun = lambda rows, text: any(row.startswith(text) for row in rows)  # noqa: E731
            rows = terminal.sees(lambda rows: mode in rows and begun(rows, server_line) and begun(rows, ">"))
            rows = [row for row in rows if row]
    lines = rows[: next(at for at, row in enumerate(rows) if row.startswith(">"))]
    port = server.base_url.split(":")[-1].removesuffix("/v1")
    assert lines[:2] == [lines[0], HINT]
    assert lines[0].startswith("lmagent ")
    assert lines[0].endswith("· ~/workspace")
    assert sorted(lines[2:]) == [
        f"LM Studio at 127.0.0.1:{port} answers · qwen/qwen3-8b · 8,192 tokens",
        mode,
    ]


def test_a_server_that_says_nothing_delays_no_prompt(workspace):
    with socket.create_server(("127.0.0.1", 0)) as mute:
        with Terminal(workspace, f"http://127.0.0.1:{mute.getsockname()[1]}") as terminal:
            assert "answer" not in terminal.screen
            terminal.enter("/mode")
            terminal.wait_for("mode")


def test_a_server_that_does_not_answer_and_a_sandbox_that_is_missing_are_said(workspace, monkeypatch, tmp_path):
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        with Terminal(workspace, f"http://127.0.0.1:{held.getsockname()[1]}") as terminal:
            terminal.wait_for("does not answer")
            terminal.wait_for("no sandbox, so no command runs: install bubblewrap")


def test_a_sandbox_that_is_off_is_a_warning(workspace):
    with LMStudioServer(lambda _: say("Hi."), loaded=True) as server:
        with Terminal(workspace, server.base_url, "--sandbox", "off") as terminal:
            terminal.wait_for("SANDBOX IS OFF")
