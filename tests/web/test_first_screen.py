"""The first screen says what is missing before the agent can work, and does what it can about it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from gateway_kit import Running, gateway
from panel_kit import go, region, until
from testkit.servers.ollama import OllamaServer
from web_kit import shot

from lmagent.modelserver.http.daemon import stop
from lmagent.testing import ScriptedServer

sys.path.insert(0, str(Path(__file__).parents[1] / "modelserver"))

from fakehub import REPO, FakeHub
from madegguf import chat_file


def without_server(folder: Path, **env: str) -> Running:
    """A gateway whose model server is gone."""
    with ScriptedServer([]) as gone:
        return Running(folder, gone, [], env)


def test_where_no_server_answers_the_places_that_were_looked_at_are_listed(tmp_path, screen):
    running = without_server(tmp_path)
    running.start()
    try:
        page = screen(running)
        page.get_by_text("No model server answers.").wait_for()
        missing = region(page, "Before you start")
        for place in (
            "LM Studio http://127.0.0.1:1234/v1",
            "Ollama http://127.0.0.1:11434/v1",
            "vLLM http://127.0.0.1:8000/v1",
        ):
            missing.get_by_text(place).wait_for()
        shot(page, tmp_path, "first-no-server")
        with ScriptedServer([], port=running.model.port):
            missing.get_by_role("button", name="Check again").click()
            page.get_by_text("No model server answers.").wait_for(state="detached")
    finally:
        running.stop()


@pytest.mark.long
def test_another_server_that_runs_is_one_press_away(tmp_path, screen):
    with OllamaServer(model="qwen3:8b") as ollama:
        running = without_server(tmp_path, OLLAMA_HOST=ollama.base_url)
        running.start()
        try:
            page = screen(running)
            page.get_by_role("button", name="Use qwen3:8b (Ollama)").click()
            page.get_by_text("No model server answers.").wait_for(state="detached")
            assert running.ask("GET", "/api/models").json["current"] == "ollama:qwen3:8b"
        finally:
            running.stop()


def test_a_model_of_this_machine_is_run_by_our_own_server_at_one_press(tmp_path, screen):
    library = tmp_path / "data" / "models"
    chat_file(library / "tiny-Q8_0.gguf")
    os.truncate(library / "tiny-Q8_0.gguf", 65 << 20)  # below 64 MiB a model counts as a toy
    running = without_server(tmp_path)
    running.start()
    try:
        page = screen(running)
        page.get_by_role("button", name="Start and use it").click()
        page.get_by_text("No model server answers.").wait_for(state="detached")
        assert running.ask("GET", "/api/models").json["current"] == "own:tiny-q8_0"
    finally:
        running.stop()
        stop(tmp_path / "data" / "server")


def test_several_models_and_no_choice_lead_to_the_list_of_models(tmp_path, screen):
    with gateway(tmp_path, options=("-m", "")) as running, ScriptedServer([], models=("one", "two")) as model:
        running.stop()
        running.model = model
        running.start()
        page = screen(running)
        page.get_by_role("link", name="Choose a model").click()
        page.get_by_role("listitem", name="two").get_by_role("button", name="Set as default").wait_for()
        running.stop()


@pytest.mark.long
def test_a_sandbox_that_is_off_is_said_so(tmp_path, screen):
    with gateway(tmp_path, SANDBOX="off") as running:
        page = screen(running)
        page.get_by_text("The sandbox is switched off.").wait_for()


@pytest.mark.long
def test_a_workspace_that_cannot_be_written_to_is_said_so(tmp_path, screen):
    with gateway(tmp_path) as running:
        page = screen(running)
        running.workspace.rename(tmp_path / "elsewhere")
        page.reload()
        page.get_by_text("cannot be written to").wait_for()
        (tmp_path / "elsewhere").rename(running.workspace)


def test_a_download_is_begun_followed_cancelled_resumed_and_used_on_the_page(tmp_path, screen):
    content = chat_file(tmp_path / "made.gguf").read_bytes() + os.urandom(600_000)
    with FakeHub({"model-Q4_K_M.gguf": content}, slow=0.1) as hub, gateway(tmp_path, **hub.env) as running:
        page = screen(running)
        go(page, "#/p/models")
        form = region(page, "Download a model")
        form.get_by_role("textbox", name="Model to download").fill("what is this")
        form.get_by_role("button", name="Download", exact=True).click()
        form.get_by_text("is not the name of a repository").wait_for()
        assert form.get_by_role("textbox").input_value() == "what is this"
        form.get_by_role("textbox").fill(REPO)
        form.get_by_role("button", name="Download", exact=True).click()
        form.get_by_role("progressbar").wait_for()
        until(lambda: form.get_by_text("%", exact=False).count() > 0, "no progress is shown")
        shot(page, tmp_path, "download")
        form.get_by_role("button", name="Cancel").click()
        form.get_by_text("Paused").wait_for()
        hub.slow = 0.0
        form.get_by_role("button", name="Resume").click()
        form.get_by_text("Downloaded").wait_for()
        form.get_by_role("button", name="Dismiss").click()
        form.get_by_text("Downloaded").wait_for(state="detached")


@pytest.mark.long
def test_a_model_is_loaded_and_unloaded_on_the_page(tmp_path, screen):
    with gateway(tmp_path) as running, OllamaServer(model="qwen3:8b") as ollama:
        running.stop()
        running.model = ollama
        running.start()
        page = screen(running)
        go(page, "#/p/models")
        card = page.get_by_role("listitem", name="qwen3:8b")
        card.get_by_text("Q4_K_M").wait_for()
        card.get_by_role("button", name="Load", exact=True).click()
        card.get_by_text("Loaded", exact=True).wait_for()
        card.get_by_role("button", name="Unload").click()
        card.get_by_text("waits until it is loaded again").wait_for()
        card.get_by_role("button", name="Unload").click()
        card.get_by_text("Not loaded").wait_for()
        running.stop()
