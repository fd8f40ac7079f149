"""Several conversations on a server with slots: none pushes the main one out of its slot."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from lmagent.app.wiring import HostOptions, open_host
from lmagent.core.commands import Submit
from lmagent.core.messages import user
from lmagent.engine.aside import ask_aside
from lmagent.engine.lane import run_until_idle
from lmagent.engine.session import Session
from lmagent.testing.script import say
from lmagent.testing.servers.llamacpp import LlamaCppServer


async def turn(session: Session, text: str) -> None:
    await session.send(Submit(message=user(text)))
    await run_until_idle(session)


@pytest.mark.parametrize("slots", [2, 4])
def test_side_calls_forks_and_other_sessions_never_evict_the_main_conversation(tmp_path: Path, slots: int) -> None:
    async def main() -> None:
        with LlamaCppServer(lambda _: say("A word. " * 50), context=32768 * slots, slots=slots) as server:
            host = await open_host(HostOptions(tmp_path, {"llm_url": server.base_url}), say=print)
            first, second = await host.new_session(), await host.new_session()
            for number in range(4):
                await turn(first, f"task {number}")
                async for _ in ask_aside(first, "what was that?"):
                    pass
                await turn(second, f"another {number}")
            await turn(await host.fork_session(first.state.session), "go another way")
            await turn(first, "the last one")
            await host.aclose()
            of_main = [row for row in server.kv.log if row.slot == 0]
            assert len(of_main) == 9
            # What an aside had read behind the conversation goes; nothing of the conversation does.
            assert all(row.read < 400 for row in of_main[1:]), "only what is new is read"

    anyio.run(main)
