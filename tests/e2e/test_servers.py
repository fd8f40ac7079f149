"""The real program on a task of many steps, against each model server, honest and lying: judged by the end state."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from testkit.amount import mostly_long
from testkit.servers.base import DialectServer
from testkit.servers.llamacpp import LlamaCppServer
from testkit.servers.matrix import HONEST, LYING
from testkit.servers.ollama import OllamaServer

from lmagent.app.clock import SystemClock
from lmagent.core import events as ev
from lmagent.store.jsonl import JsonlStore
from lmagent.testing.script import call, say

STEPS = 30


def run(server: DialectServer, workspace: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "HOME": str(workspace.parent), "LLM_RETRY_DELAY": "0"}
    command = [sys.executable, "-m", "lmagent", "-w", str(workspace), "--base-url", server.base_url]
    command += ["--permission", "auto", *arguments, "Read every file, then write REPORT.md."]
    return subprocess.run(
        command, env=environment, cwd=workspace, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120
    )


def script():
    reads = [call("read", path=f"f{number}.txt") for number in range(STEPS - 1)]
    steps = iter([*reads, call("write", path="REPORT.md", content="all read\n"), say("REPORT.md is written.")])

    def answer(received):
        summary = "Write a summary" in str(received.body["messages"][-1]["content"])
        return say("Files were read.") if summary else next(steps)

    return answer


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    for number in range(STEPS - 1):
        (folder / f"f{number}.txt").write_text(f"line {number} of some text that is read\n" * 30)
    return folder


def events_of(workspace: Path) -> list[ev.DurableEvent]:
    store = JsonlStore(workspace / ".lmagent" / "sessions", SystemClock())
    session = store.latest()
    assert session is not None
    return list(store.read(session))


@pytest.mark.parametrize("name", mostly_long([*HONEST, *LYING], kept=4))
def test_thirty_steps_are_done_on_every_server(name, workspace):
    with {**HONEST, **LYING}[name](script()) as server:
        ran = run(server, workspace)
        assert ran.returncode == 0, ran.stderr
        assert (workspace / "REPORT.md").read_text() == "all read\n"
        finished = [event for event in events_of(workspace) if isinstance(event, ev.TurnFinished)]
        assert finished[-1].outcome == "done"
        # What was cut in silence never became a part of the session.
        counted = [e.usage for e in events_of(workspace) if isinstance(e, ev.StepFinished) and not e.usage.estimated]
        assert all(usage.prompt_tokens <= server.window for usage in counted)


@pytest.mark.parametrize("name", ["cuts in silence", "states more than it serves, and cuts"])
def test_a_silent_cut_is_told_and_the_prompt_made_smaller(name, workspace):
    with LYING[name](script()) as server:
        ran = run(server, workspace)
        told = [event for event in events_of(workspace) if isinstance(event, ev.Notice)]
        assert any(event.code == "prompt_cut" and "without a word" in event.text for event in told)
        assert "cut the prompt" in ran.stderr
        assert any(isinstance(e, ev.CompactionDone) and e.trigger == "overflow" for e in events_of(workspace))


def test_ollama_is_asked_by_its_own_route_with_a_window_that_holds(workspace):
    with OllamaServer(script()) as server:
        run(server, workspace)
        assert {request.path for request in server.requests if request.method == "POST"} <= {"/api/chat", "/api/show"}
        chats = [request for request in server.requests if request.path == "/api/chat"]
        assert {request.body["options"]["num_ctx"] for request in chats} == {16384}
        assert server.reloads <= 1


def test_a_small_window_gets_a_small_prompt(workspace):
    sizes = {}
    for window in (4096, 8192, 16384, 32768):
        with LlamaCppServer(script(), context=window) as server:
            run(server, workspace, "--max-iterations", "1")
            body = server.chats[0].body
            sizes[window] = len(str(body["messages"])) + len(str(body["tools"]))
    assert sizes[4096] <= sizes[8192] < sizes[16384] <= sizes[32768]
    assert sizes[4096] / 4 < 1250, "tokens of the whole first prompt"
