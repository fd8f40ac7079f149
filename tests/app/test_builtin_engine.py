"""Where no model server runs and the library has a model, the agent runs it itself."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import anyio
import pytest
from testkit.gguf import build_tiny_gguf

from lmagent.app.options import HostOptions
from lmagent.app.servers import found
from lmagent.app.servers.found import best_of, builtin_server
from lmagent.app.servers.ownserver import OwnServer
from lmagent.app.wiring import open_host
from lmagent.config.settings import Settings
from lmagent.core import events as ev
from lmagent.core.commands import Submit
from lmagent.core.errors import ConfigError, LmagentError
from lmagent.core.messages import user
from lmagent.engine.lane import run_until_idle
from lmagent.modelserver.spec import ModelEntry, ModelSettings
from lmagent.providers.dialects.ask import Ask
from lmagent.providers.dialects.probe import probe
from lmagent.providers.transport import HttpTransport


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for package in ("xllamacpp", "gguf"):
        pytest.importorskip(package, reason=f"the built-in engine was NOT tested: the package {package} is missing")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("OLLAMA_MODELS", raising=False)
    models = tmp_path / "data" / "models"
    models.mkdir(parents=True)
    build_tiny_gguf(models / "tiny.gguf")
    (models / "tiny.toml").write_text("threads = 1\ncontext = 8192\nparallel = 2\n")
    return tmp_path / "data"


@pytest.mark.engine
def test_the_server_of_our_own_tells_its_models_with_windows_and_slots_and_wants_its_key(data: Path) -> None:
    async def main() -> None:
        transport = HttpTransport()
        async with OwnServer(data / "models") as server:
            facts = await probe(transport, server.url, "tiny", server.key)
            unknown = await probe(transport, server.url, "tiny", "another key")
        await transport.aclose()
        assert (facts.dialect, facts.slots) == ("lmagent", 2)
        assert facts.model is not None
        assert (facts.model.served, facts.model.loaded) == (8192, False)
        assert not unknown.models

    anyio.run(main)


@pytest.mark.engine
def test_who_names_no_model_gets_the_largest_that_is_whole_or_the_one_that_is_loaded(data: Path) -> None:
    models = data / "models"
    whole = (models / "tiny.gguf").read_bytes()
    (models / "a-damaged.gguf").write_bytes(whole[: len(whole) // 2])
    (models / "b-small.gguf").write_bytes(whole)
    (models / "tiny.gguf").write_bytes(whole + b"\0" * 4096)

    async def main() -> None:
        transport = HttpTransport()
        async with OwnServer(models) as server:
            facts = await probe(transport, server.url, "", server.key)
            assert facts.model is not None
            assert (facts.model.id, facts.model.window) == ("tiny", 8192)
            ask = Ask(transport, server.url, server.key)
            assert await ask.post("/api/load", {"model": "b-small"})
            facts = await probe(transport, server.url, "", server.key)
            assert facts.model is not None
            assert facts.model.id == "b-small"
        await transport.aclose()

    anyio.run(main)


def test_the_server_of_our_own_imports_nothing_from_the_folder_that_the_agent_is_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A project that somebody cloned may have a file `anyio.py`."""
    project, models, ran = tmp_path / "project", tmp_path / "models", tmp_path / "ran"
    project.mkdir()
    models.mkdir()
    for name in ("anyio", "tempfile", "msgspec", "lmagent"):
        (project / f"{name}.py").write_text(f"open({str(ran)!r}, 'w').close()\nraise SystemExit(3)\n")
    monkeypatch.chdir(project)

    async def main() -> None:
        async with OwnServer(models) as server:
            assert server.url

    anyio.run(main)
    assert not ran.exists()


@pytest.mark.skipif(os.name != "posix", reason="there are no such signals")
def test_the_server_of_our_own_leaves_nothing_behind_when_a_signal_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places, models = tmp_path / "places", tmp_path / "models"
    places.mkdir()
    models.mkdir()
    monkeypatch.setenv("TMPDIR", str(places))

    async def main() -> None:
        async with OwnServer(models) as server:
            assert server.pid
            assert len(list(places.iterdir())) == 1
            os.kill(server.pid, signal.SIGTERM)
            with anyio.fail_after(20):
                await server.ended()
            assert server.pid == 0
            assert not list(places.iterdir())

    anyio.run(main)


@pytest.mark.engine
def test_a_session_on_the_built_in_engine_reads_its_common_prefix_once(data: Path, tmp_path: Path) -> None:
    async def main() -> None:
        settings = Settings(agent_data_dir=data, llm_model="tiny")
        built = await builtin_server(settings)
        assert built is not None
        chosen, server = built
        flags = {"llm_url": chosen.llm_url, "llm_api_key": chosen.llm_api_key, "llm_model": "tiny", "llm_max_tokens": 8}
        (tmp_path / "ws").mkdir()
        host = await open_host(HostOptions(tmp_path / "ws", flags), say=print)
        session = await host.new_session()
        for task in ("Say something.", "And again."):
            await session.send(Submit(message=user(task)))
            await run_until_idle(session)
        await host.aclose()
        await server.aclose()
        assert session.window.tokens == 8192
        steps = [event for event in host.store.read(session.state.session) if isinstance(event, ev.StepFinished)]
        assert len(steps) >= 2
        for step in steps[1:]:
            assert step.usage.prompt_tokens - step.usage.cached_tokens < 200, step.usage

    anyio.run(main)


@pytest.mark.engine
def test_a_model_that_is_not_there_is_told_by_name(data: Path) -> None:
    async def main() -> None:
        with pytest.raises(ConfigError, match=r"no model server runs, and .*nothing-like-it"):
            await builtin_server(Settings(agent_data_dir=data, llm_model="nothing-like-it"))

    anyio.run(main)


@pytest.mark.engine
def test_without_a_model_worth_the_name_no_server_is_started(data: Path) -> None:
    async def main() -> None:
        assert await builtin_server(Settings(agent_data_dir=data)) is None  # the tiny model is too small to be one
        (data / "models" / "tiny.gguf").unlink()
        assert await builtin_server(Settings(agent_data_dir=data)) is None

    anyio.run(main)


def test_a_server_that_does_not_come_up_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/bin/true")

    async def main() -> None:
        with pytest.raises(LmagentError, match="did not start"):
            await OwnServer(tmp_path).start()

    anyio.run(main)


def entry(name: str, size: int, **more: object) -> ModelEntry:
    return ModelEntry(name=name, engine="llama", size=size << 20, needed=size << 21, **more)


def test_the_largest_model_that_fits_is_taken_and_never_one_that_cannot_chat() -> None:
    small, middle, large = entry("small", 500), entry("middle", 4000), entry("large", 16000)
    others = [
        entry("embedder", 600, settings=ModelSettings(embedding=True)),
        entry("damaged", 700, broken="it ends early"),
        entry("toy", 1),
    ]
    every = [small, middle, large, *others]
    assert best_of(every, 10_000 << 20) is middle
    assert best_of(every, 64_000 << 20) is large
    assert best_of(every, 100 << 20) is small, "it may fit after all, or the server says why not"
    assert best_of(others, 64_000 << 20) is None
    assert found.SMALLEST > 3 << 20, "the demo model is never taken by itself"
