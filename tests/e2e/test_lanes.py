"""Several conversations on a server with slots: none pushes the main one out of its slot."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from testkit.servers.llamacpp import LlamaCppServer

from lmagent.app.options import HostOptions
from lmagent.app.wiring import open_host
from lmagent.core.commands import Interrupt, Submit
from lmagent.core.events import PrefillProgress
from lmagent.core.messages import user
from lmagent.engine.context.aside import ask_aside
from lmagent.engine.lane import run_until_idle
from lmagent.engine.session import Session
from lmagent.providers.cache_slot import IDLE
from lmagent.testing.loopback import Received
from lmagent.testing.script import Behaviour, call, say


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


def reads(steps: int) -> Callable[[Received], Behaviour]:
    """Each turn reads files one a step; a question on the side is answered at once."""

    def answer(received: Received) -> Behaviour:
        messages = received.body["messages"]
        last = max(at for at, message in enumerate(messages) if message["role"] == "user")
        done = sum(message["role"] == "tool" for message in messages[last:])
        return call("read", path=f"{done}.txt") if done < steps else say("Read.")

    return answer


def test_on_one_slot_a_second_session_waits_for_the_end_of_the_turn_instead_of_evicting_it(tmp_path: Path) -> None:
    for number in range(8):
        (tmp_path / f"{number}.txt").write_text("a line of a file\n" * 40)

    async def main() -> None:
        with LlamaCppServer(reads(8), context=32768, slots=1) as server:
            host = await open_host(HostOptions(tmp_path, {"llm_url": server.base_url}), say=print)
            first, second = await host.new_session(), await host.new_session()
            states: list[bool] = []
            second.listen(lambda event: states.append(event.waits) if isinstance(event, PrefillProgress) else None)
            async with anyio.create_task_group() as both:
                both.start_soon(turn, first, "read them")
                both.start_soon(turn, second, "read them too")
            await host.aclose()
            assert len(server.kv.log) == 18
            assert server.kv.evictions == 1, "once, when the second one's turn came"
            assert states[:2] == [True, False], "and it was told that it waits, and that it no longer does"

    anyio.run(main)


def test_a_session_that_waits_for_a_person_holds_up_no_other(tmp_path: Path) -> None:
    async def main() -> None:
        model = lambda got: call("write", path="a.txt", content="a") if "write it" in str(got.body) else say("Hello.")  # noqa: E731
        with LlamaCppServer(model, context=32768, slots=1) as server:
            host = await open_host(HostOptions(tmp_path, {"llm_url": server.base_url}), say=print)
            host.attended = True
            first, second = await host.new_session(), await host.new_session()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(turn, first, "write it")
                while not first.state.approvals:  # noqa: ASYNC110
                    await anyio.sleep(0.01)
                with anyio.fail_after(IDLE - 2):
                    await turn(second, "say hello")
                assert first.state.approvals
                await first.send(Interrupt())
            await host.aclose()

    anyio.run(main)
