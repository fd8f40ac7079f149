"""The server reads the fixed part of the prompt while the task is being typed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from testkit.engine import EngineServer
from testkit.gguf import build_tiny_gguf
from testkit.servers.llamacpp import LlamaCppServer

from lmagent.app.host import Host
from lmagent.app.options import HostOptions
from lmagent.app.wiring import open_host
from lmagent.core import events as ev
from lmagent.core.commands import Submit
from lmagent.core.messages import user
from lmagent.engine.lane import run_until_idle
from lmagent.testing.script import say
from lmagent.testing.server import ScriptedServer


async def opened(workspace: Path, url: str, **flags: object) -> Host:
    workspace.mkdir(exist_ok=True)
    (workspace / ".lmagent.md").write_text("Use tabs.\n")
    return await open_host(HostOptions(workspace, {"llm_url": url, **flags}), say=print)


async def first_step(host: Host) -> ev.StepFinished:
    session = await host.new_session()
    await session.send(Submit(message=user("Say something.")))
    await run_until_idle(session)
    return next(event for event in host.store.read(session.state.session) if isinstance(event, ev.StepFinished))


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineServer]:
    for package in ("xllamacpp", "gguf"):
        pytest.importorskip(package, reason=f"the real engine was NOT tested: the package {package} is missing")
    with EngineServer(build_tiny_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf")) as server:
        yield server


@pytest.mark.engine
def test_on_the_real_engine_the_first_answer_reads_only_the_task(engine, tmp_path):
    async def main() -> None:
        host = await opened(tmp_path / "ws", engine.base_url, llm_max_tokens=8)
        await host.prewarm()
        usage = (await first_step(host)).usage
        await host.aclose()
        assert usage.prompt_tokens > 1000
        assert usage.prompt_tokens - usage.cached_tokens < 60, usage

    anyio.run(main)


def test_the_slot_of_the_conversation_is_warmed_and_nothing_of_it_lost(tmp_path):
    async def main() -> None:
        with LlamaCppServer([say("."), say("Hello.")], context=32768, slots=2) as server:
            host = await opened(tmp_path / "ws", server.base_url)
            await host.prewarm()
            warmed = server.kv.read
            await first_step(host)
            await host.aclose()
            assert server.chats[0].body["max_tokens"] == 1
            assert server.kv.read - warmed < warmed / 20

    anyio.run(main)


@pytest.mark.parametrize("flags", [{"prewarm": False}, {"llm_url": "http://nowhere.invalid/v1"}])
def test_it_can_be_switched_off_and_is_off_for_remote_servers(tmp_path, flags):
    async def main() -> None:
        with LlamaCppServer([say("Hello.")]) as server:
            host = await opened(tmp_path / "ws", server.base_url, **flags)
            await host.prewarm()
            await host.aclose()
            assert server.requests == []

    anyio.run(main)


def test_a_server_of_which_nothing_is_known_and_one_that_is_not_there_are_left_alone(tmp_path):
    async def main() -> None:
        with ScriptedServer([say("Hello.")]) as server:
            host = await opened(tmp_path / "ws", server.base_url)
            await host.prewarm()
            await host.aclose()
            assert server.chats == []
        gone = await opened(tmp_path / "ws", "http://127.0.0.1:9/v1")
        await gone.prewarm()
        await gone.aclose()

    anyio.run(main)
