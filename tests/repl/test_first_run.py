"""The first run, at a real terminal: what is asked, what is offered without a server, and what is saved."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from fakehub import FakeHub
from madegguf import TENSORS, gguf, pairs
from terminal import Terminal
from testkit.amount import mostly_long
from testkit.servers.ollama import OllamaServer

from lmagent.modelserver.library.suggestions import recommended
from lmagent.modelserver.pool.machine import machine_memory
from lmagent.providers.discovery import DEFAULT
from lmagent.providers.transport import listens
from lmagent.testing import ScriptedServer
from lmagent.testing.script import say

pytestmark = pytest.mark.skipif(
    any(listens(server.base_url, 0.2) for server in DEFAULT), reason="a model server of this machine would be found"
)

MODEL = gguf(pairs(), TENSORS)


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("OLLAMA_HOST", "OLLAMA_MODELS", "LLM_MODEL"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


@pytest.fixture
def saved(workspace: Path) -> Path:
    return workspace.parent / ".config" / "lmagent" / ".env"


def menu(terminal: Terminal, text: str) -> str:
    """The number of a line of the menu."""
    found = re.search(rf"(\d)  {text}", terminal.screen)
    assert found, terminal.screen
    return found[1]


def test_the_first_run_asks_for_server_and_folder_once_and_keeps_the_answers(workspace):
    project = workspace / "project"
    with ScriptedServer([say("Hi."), say("Hi again.")], strict=True) as server:
        with Terminal(workspace) as terminal:
            terminal.wait_for("What to use")
            terminal.enter(menu(terminal, "Type the address"))
            terminal.wait_for("Model server")
            terminal.enter("ftp://nowhere")
            terminal.wait_for("Model server [", times=2)
            terminal.enter(server.base_url)
            terminal.wait_for("Folder to work in")
            terminal.enter("project")
            terminal.wait_for("Make it? [Y/n]")
            terminal.enter("")
            terminal.wait_for("Save LLM_URL and WORKSPACE")
            terminal.enter("")
            terminal.wait_for("> ")
            terminal.enter("hello")
            terminal.wait_for("Hi.")
            terminal.enter("/quit")
            assert terminal.ended() == 0
        saved = workspace.parent / ".config" / "lmagent" / ".env"
        assert saved.read_text().splitlines() == [f"LLM_URL={server.base_url}", f"WORKSPACE={project}"]
        run = subprocess.run(
            [sys.executable, "-m", "lmagent", "hello again"],
            env={"HOME": str(workspace.parent), "PATH": os.environ["PATH"]},
            cwd=workspace,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert (run.returncode, run.stdout) == (0, "Hi again.\n")
    assert len(list((project / ".lmagent" / "sessions").glob("*/events.jsonl"))) == 2


def test_an_address_where_nothing_answers_is_used_now_and_not_saved(workspace, saved):
    with socket.socket() as held, Terminal(workspace) as terminal:
        held.bind(("127.0.0.1", 0))
        terminal.wait_for("What to use")
        terminal.enter(menu(terminal, "Type the address"))
        terminal.wait_for("Model server [")
        terminal.enter(f"http://127.0.0.1:{held.getsockname()[1]}")
        terminal.wait_for("Folder to work in")
        terminal.enter("")
        terminal.wait_for("it is used now, and not saved.")
        terminal.wait_for("Type a task.")
        assert "Save LLM_URL" not in terminal.screen
    assert not saved.exists()


def test_a_user_who_wants_nothing_saved_is_not_asked_again_while_a_server_is_found(workspace, saved, monkeypatch):
    with OllamaServer([say("Hi.")]) as server:
        monkeypatch.setenv("OLLAMA_HOST", server.base_url)
        with Terminal(workspace) as terminal:
            terminal.wait_for("Model server [")
            terminal.enter("")
            terminal.wait_for("Folder to work in")
            terminal.enter("")
            terminal.wait_for("Save LLM_URL")
            terminal.enter("n")
            screen = terminal.wait_for("Not saved, and not asked again while a model is found.")
            assert "To be asked again: rm " in screen
            terminal.wait_for("Type a task.")
        with ExitStack() as stack:
            terminal = Terminal(workspace)  # it is not entered: that waits for the first question
            stack.push(terminal)
            assert "Nothing is configured yet" not in terminal.wait_for("Type a task.")
        (workspace.parent / ".local/share/lmagent/first-run-declined").unlink()
        with Terminal(workspace) as terminal:
            terminal.wait_for("Nothing is configured yet")
    assert not saved.exists()


@pytest.mark.parametrize("before", mostly_long([("doctor",), ("models", "recommend"), ("sessions", "list")]))
def test_it_is_shown_whatever_was_typed_before(workspace, before):
    env = {"HOME": str(workspace.parent), "PATH": os.environ["PATH"], "LLM_RETRY_DELAY": "0"}
    subprocess.run([sys.executable, "-m", "lmagent", *before], env=env, cwd=workspace, capture_output=True, timeout=60)
    (workspace / ".env").write_text("DATABASE_URL=postgres://somewhere\n")
    with Terminal(workspace) as terminal:
        terminal.wait_for("What to use")


def test_without_a_server_one_enter_downloads_the_recommended_model_and_it_runs_here(workspace, saved, monkeypatch):
    pytest.importorskip("xllamacpp", reason="the built-in engine was NOT tested: the package xllamacpp is missing")
    best = recommended(machine_memory().total)[0]
    with FakeHub({f"{best.name}-{best.quant}.gguf": MODEL}, repo=best.repo) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.hub.url)
        monkeypatch.setenv("NO_PROXY", "*")
        with Terminal(workspace) as terminal:
            screen = terminal.wait_for("What to use")
            assert f"1  Download {best.name} ({best.download:.1f} GB)" in screen
            terminal.enter("")
            terminal.wait_for("Folder to work in")
            terminal.enter("")
            terminal.wait_for("Save LLM_MODEL")
            terminal.enter("")
            terminal.wait_for("runs here, on the built-in engine")
            terminal.wait_for("Type a task.")
    name = f"{best.name}-{best.quant}".lower()
    assert saved.read_text().lower() == f"llm_model={name}\n"


def test_a_download_that_fails_says_why_and_leads_back_to_the_menu(workspace, saved, monkeypatch):
    pytest.importorskip("xllamacpp", reason="the built-in engine was NOT tested: the package xllamacpp is missing")
    with FakeHub({}) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.hub.url)
        with Terminal(workspace) as terminal:
            terminal.wait_for("What to use")
            terminal.enter("")
            terminal.wait_for("is not on 127.0.0.1")
            terminal.wait_for("What to use", times=2)
    assert not saved.exists()


def test_a_model_of_the_library_is_offered_first(workspace, saved):
    pytest.importorskip("xllamacpp", reason="the built-in engine was NOT tested: the package xllamacpp is missing")
    models = workspace.parent / ".local/share/lmagent/models"
    models.mkdir(parents=True)
    with (models / "mine.gguf").open("wb") as file:
        file.write(MODEL)
        file.truncate(70 << 20)
    with Terminal(workspace) as terminal:
        assert "1  Use mine, which is on this machine already" in terminal.wait_for("What to use")
        terminal.enter("")
        terminal.wait_for("Folder to work in")
        terminal.enter("")
        terminal.wait_for("Save LLM_MODEL")
        terminal.enter("")
        terminal.wait_for("mine runs here, on the built-in engine")
    assert saved.read_text() == "LLM_MODEL=mine\n"


def test_without_the_engine_the_command_that_installs_it_is_shown(workspace, monkeypatch, tmp_path):
    (tmp_path / "hide").mkdir()
    (tmp_path / "hide" / "sitecustomize.py").write_text(
        "import importlib.util as util\nfind = util.find_spec\n"
        "util.find_spec = lambda name, package=None: None if name == 'xllamacpp' else find(name, package)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "hide"))
    with Terminal(workspace) as terminal:
        screen = terminal.wait_for("What to use")
        assert re.search(r"To run models without another program, type: .*install.*\[local\]", screen)
        assert "Download" not in screen
        terminal.enter("")
        terminal.wait_for("What to use", times=2)
