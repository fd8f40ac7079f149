"""`gpu` of agent.yaml: given to lmagent's model server for a model that it has not loaded, else shown."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from testkit.gguf import build_tiny_gguf

from lmagent.app.agentproject import with_settings
from lmagent.app.options import HostOptions
from lmagent.app.servers.found import builtin_server
from lmagent.app.wiring import open_host
from lmagent.config.settings import Settings
from lmagent.projects.load import load_folder
from lmagent.providers.dialects.ask import Ask
from lmagent.providers.transport import HttpTransport
from lmagent.testing import ScriptedServer, say


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "agent"
    folder.mkdir()
    (folder / "agent.yaml").write_text("name: Optimized\ngpu:\n  n_gpu_layers: 8\n  flash_attn: true\n")
    return folder


@pytest.mark.engine
def test_the_built_in_engine_loads_the_model_with_the_projects_settings_and_leaves_a_loaded_one(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("xllamacpp", "gguf"):
        pytest.importorskip(package, reason=f"the built-in engine was NOT tested: the package {package} is missing")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    models, workspace = tmp_path / "data" / "models", tmp_path / "ws"
    models.mkdir(parents=True)
    workspace.mkdir()
    build_tiny_gguf(models / "tiny.gguf")
    (models / "tiny.toml").write_text("threads = 1\ncontext = 8192\n")

    async def main() -> None:
        built = await builtin_server(Settings(agent_data_dir=tmp_path / "data", llm_model="tiny"))
        assert built is not None
        chosen, server = built
        transport = HttpTransport()
        ask, said = Ask(transport, server.url, server.key), list[str]()
        flags = {"llm_url": chosen.llm_url, "llm_api_key": chosen.llm_api_key, "llm_model": "tiny"}
        host = await open_host(with_settings(HostOptions(workspace, flags), load_folder(project)), say=said.append)
        await host.settle()
        assert await ask.get("/api/ps") == {"models": []}
        assert await ask.post("/api/load", {"model": "tiny"})
        shown = await ask.get("/api/ps")
        assert [(row["gpu_layers"], row["flash_attention"]) for row in shown["models"]] == [(8, "on")]
        await host.settle()
        assert not any("gpu" in line for line in said)
        assert await ask.post("/api/load", {"model": "tiny", "gpu_layers": 2})
        await host.settle()
        await host.settle()
        told = "tiny is loaded already, and not with gpu_layers 8, flash_attention on: lmagent models load tiny --gpu"
        assert [line[: len(told)] for line in said if "gpu" in line] == [told]
        assert (await ask.get("/api/ps"))["models"][0]["gpu_layers"] == 2
        await host.aclose()
        await transport.aclose()
        await server.aclose()

    anyio.run(main)


def test_on_another_server_the_settings_are_shown_and_nothing_is_asked_of_it(project: Path, tmp_path: Path) -> None:
    with ScriptedServer([say("Hello.")]) as server:
        env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "AGENT_DATA_DIR": str(tmp_path / "data")}
        command = [sys.executable, "-m", "lmagent", "agent", "test", "--message", "Hi", str(project)]
        done = subprocess.run(
            command, env=env | {"LLM_URL": server.base_url}, capture_output=True, text=True, cwd=tmp_path, timeout=60
        )
        asked = [request.path for request in server.requests]
    assert (done.returncode, done.stdout.strip()) == (0, "Hello.")
    assert done.stderr.count("the author loaded the model with gpu_layers 8, flash_attention on: set this in") == 1
    assert not [path for path in asked if "load" in path]


def test_for_a_model_that_lmagents_server_passes_on_the_settings_are_shown(project: Path, tmp_path: Path) -> None:
    def lmagent(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "lmagent", *arguments]
        return subprocess.run(command, env=env, capture_output=True, text=True, cwd=tmp_path, timeout=60)

    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "AGENT_DATA_DIR": str(tmp_path / "data")}
    (tmp_path / "data" / "models").mkdir(parents=True)
    with ScriptedServer([say("Hello.")]) as server:
        far = f'upstream = "{server.base_url}"\nupstream_model = "test-model"\n'
        (tmp_path / "data" / "models" / "far.toml").write_text(far)
        started = lmagent("server", "start", "--port", "0", "--json")
        assert started.returncode == 0, started.stderr
        try:
            done = lmagent("agent", "test", "--message", "Hi", "--model", "far", str(project))
            refused = lmagent("models", "load", "far", "--gpu-layers", "8")
            loaded = lmagent("models", "load", "far")
        finally:
            lmagent("server", "stop")
    assert (done.returncode, done.stdout.strip()) == (0, "Hello."), done.stderr
    assert done.stderr.count("the author loaded the model with gpu_layers 8, flash_attention on: set this in") == 1
    assert (refused.returncode, "far is a model of another server" in refused.stderr) == (1, True), refused.stderr
    assert loaded.stdout == "far: ready, on another server\n"


def test_an_archive_shows_what_it_asks_of_the_gpu(project: Path, tmp_path: Path) -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "lmagent", "agent", "show", str(project)], capture_output=True, text=True, cwd=tmp_path
    )
    assert "gpu          gpu_layers 8, flash_attention on, if lmagent's model server loads the model" in shown.stdout
    assert shown.stderr == ""
