"""What a gateway that died has left is taken up by whoever comes first: before the keeper has looked, too."""

from __future__ import annotations

from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from hub_kit import hub_on, recorded, until

from lmagent.core import events as ev
from lmagent.core.commands import Interrupt, Rename
from lmagent.core.messages import user
from lmagent.gateway.gateway import Gateway
from lmagent.testing import ScriptedServer
from lmagent.testing.loopback import Received
from lmagent.testing.script import Reply, say, slow

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@asynccontextmanager
async def left_behind(workspace: Path, model: ScriptedServer):
    """A hub, and a session whose turn an earlier one has left, held by somebody else while this hub looked first."""
    async with hub_on(workspace, model.base_url) as hub:
        desk = await hub.runner.begin()
        await hub.runner.submit(desk.id, user("first"), id="one")
        await until(lambda: model.chats)
    log = hub.host.store.open(desk.id)
    try:
        async with hub_on(workspace, model.base_url) as hub:
            await anyio.sleep(0.5)
            log.close()
            yield hub, desk.id
    finally:
        log.close()


def hanging_at_first(received: Received) -> Reply:
    """Never answers the first message, however often it is asked, and any other at once."""
    is_second = any("second" in str(message["content"]) for message in received.messages if message["role"] == "user")
    return say("Second done.") if is_second else slow(say("cut off"), first=30)


def ends(hub: Gateway, session: str) -> list[tuple[str, str]]:
    return [(event.outcome, event.answer) for event in recorded(hub, session) if isinstance(event, ev.TurnFinished)]


@pytest.mark.parametrize("id", ["one", "two"])
async def test_an_accepted_turn_is_gone_on_with_before_what_comes_next(tmp_path, id):
    script = [slow(say("cut off"), first=30), say("First done."), say("Second done.")]
    with ScriptedServer(script) as model:
        async with left_behind(tmp_path / "w", model) as (hub, session):
            await hub.runner.submit(session, user("second"), id=id)
            await (await hub.runner.open(session)).until_idle()
            wanted = [("done", "First done."), ("done", "Second done.")]
            assert ends(hub, session) == wanted[: 1 if id == "one" else 2]


async def test_who_comes_while_somebody_opens_it_waits_until_it_has_been_taken_up(tmp_path):
    script = [slow(say("cut off"), first=30), say("First done."), say("Second done."), say("Third done.")]
    with ScriptedServer(script) as model:
        async with left_behind(tmp_path / "w", model) as (hub, session):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(hub.runner.open, session)
                while session not in hub.runner.sessions:
                    await anyio.lowlevel.checkpoint()
                for words in ("second", "third"):
                    tasks.start_soon(hub.runner.submit, session, user(words))
            await (await hub.runner.open(session)).until_idle()
            assert [outcome for outcome, _ in ends(hub, session)] == ["done"] * 3


async def test_a_command_that_begins_no_work_leaves_the_turn_to_be_gone_on_with(tmp_path):
    with ScriptedServer([slow(say("cut off"), first=30), say("First done.")]) as model:
        async with left_behind(tmp_path / "w", model) as (hub, session):
            await hub.runner.send(session, Rename(title="Named"))
            await until(lambda: ends(hub, session) == [("done", "First done.")])


async def test_an_interrupt_ends_a_turn_that_nobody_has_gone_on_with_yet(tmp_path):
    with ScriptedServer(hanging_at_first) as model:
        async with left_behind(tmp_path / "w", model) as (hub, session):
            ended = await hub.runner.send(session, Interrupt())
            assert isinstance(ended, ev.TurnFinished)
            assert ended == recorded(hub, session)[-1]
            await hub.runner.submit(session, user("second"))
            await (await hub.runner.open(session)).until_idle()
            assert [outcome for outcome, _ in ends(hub, session)] == ["interrupted", "done"]


async def test_who_interrupts_first_ends_the_turn_alone_and_what_was_accepted_behind_it_is_answered(tmp_path):
    with ScriptedServer(hanging_at_first) as model:
        async with hub_on(tmp_path / "w", model.base_url) as hub:
            session = (await hub.runner.begin()).id
            await hub.runner.submit(session, user("first"), id="one")
            await until(lambda: model.chats)
            await hub.runner.submit(session, user("second"), id="two")
        async with hub_on(tmp_path / "w", model.base_url) as hub:
            ended = await hub.runner.send(session, Interrupt())
            assert isinstance(ended, ev.TurnFinished)
            await until(lambda: len(ends(hub, session)) == 2)
            assert ends(hub, session) == [("interrupted", ""), ("done", "Second done.")]
