"""Deleting a session, and beginning another one under its name."""

from __future__ import annotations

import json

import anyio
import pytest
from gateway_kit import gateway
from hub_kit import asked, hub_on, recorded, until, watcher
from seed_client import chatting

from lmagent.core import events as ev
from lmagent.core.commands import Approve, Rename
from lmagent.core.ids import new_session_id
from lmagent.core.messages import user
from lmagent.engine.session import Session
from lmagent.gateway.broadcast.broadcast import BEGINNING
from lmagent.gateway.compat.socket import begin_anew
from lmagent.gateway.gateway import Gateway
from lmagent.gateway.turns import named
from lmagent.store.jsonl import JsonlStore
from lmagent.testing import ScriptedServer
from lmagent.testing.loopback import Received
from lmagent.testing.script import Reply, call, say

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def delegating(received: Received) -> Reply:
    last = str(received.fields["messages"][-1]["content"])
    if "delegate it" in last:
        return call("use_tool", name="delegate", arguments={"objective": "look around"})
    return say("Noted.")


def child_of(hub: Gateway, session: str) -> str:
    (child,) = {event.child for event in recorded(hub, session) if isinstance(event, ev.SubagentStarted)}
    return child


async def test_who_watches_all_sessions_is_told_of_one_that_takes_a_deleted_ones_name_at_once(tmp_path):
    with ScriptedServer(lambda _: say("Noted.")) as model:
        async with hub_on(tmp_path / "w", model.base_url) as hub:
            await hub.runner.begin("main")
            await asked(hub, "main", "one", "two")
            async with hub.broadcast.watch_all(BEGINNING) as following:
                before = len(recorded(hub, "main"))
                assert len(await following.take()) == before
                await hub.runner.delete("main")
                await hub.runner.begin("main")
                with anyio.fail_after(10):
                    came = json.loads((await following.take())[0].data)
                assert (came["type"], came["seq"]) == ("session.created", 1)


async def test_who_begins_a_session_while_one_of_that_name_is_deleted_keeps_it(tmp_path):
    with ScriptedServer(lambda _: say("Noted.")) as model:
        async with hub_on(tmp_path / "w", model.base_url) as hub:
            for _ in range(20):
                await named(hub, "main")
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(hub.runner.delete, "main")
                    await anyio.lowlevel.checkpoint()
                    tasks.start_soon(named, hub, "main")
                await anyio.sleep(0.02)
                assert await hub.runner.send("main", Rename(title="here")) is not None
                assert isinstance(recorded(hub, "main")[0], ev.SessionCreated)


async def test_a_session_is_deleted_with_a_sub_agents_that_somebody_looks_after(tmp_path):
    with ScriptedServer(delegating) as model:
        async with hub_on(tmp_path / "w", model.base_url) as hub:
            await hub.runner.begin("main")
            await asked(hub, "main", "delegate it")
            child = child_of(hub, "main")
            await hub.runner.send(child, Rename(title="looked after"))
            async with watcher(hub, child) as seen:
                await hub.runner.delete("main")
                await seen.until(lambda seen: seen.is_over)
            assert hub.host.store.sessions() == []


async def test_what_was_granted_in_a_deleted_session_does_not_hold_in_another_one_of_its_name(tmp_path):
    replies = [call("shell", command="touch asked"), say("Done.")]
    with ScriptedServer(replies) as model:
        async with hub_on(tmp_path / "w", model.base_url, permission_mode="manual") as hub:
            await hub.runner.begin("main")
            async with watcher(hub, "main") as seen:
                await hub.runner.submit("main", user("go"))
                await seen.until_type("approval.requested")
                (wanted,) = [event for event in recorded(hub, "main") if isinstance(event, ev.ApprovalRequested)]
                await hub.runner.send("main", Approve(approval=wanted.id, approved=True, scope="session"))
                await seen.until_type("turn.finished")
            assert (await hub.runner.open("main")).session.state.grants
            await hub.runner.delete("main")
            log = JsonlStore(hub.host.store.root, hub.host.clock).create("main")  # as another program begins one
            (await Session.create(log, hub.host.wiring("main"), hub.host.opening("main"))).close()
            assert (await hub.runner.open("main")).session.state.grants == []


async def test_a_conversation_that_was_put_aside_is_deleted_with_those_that_worked_for_it(tmp_path):
    with ScriptedServer(delegating) as model:
        async with hub_on(tmp_path / "w", model.base_url) as hub:
            await hub.runner.begin("main")
            await asked(hub, "main", "delegate it")
            first = child_of(hub, "main")
            aside = await begin_anew(hub, "main")
            await asked(hub, "main", "delegate it")
            second = child_of(hub, "main")
            copy = new_session_id(0)
            await hub.host.store.fork(aside, copy)  # nobody works for a copy
            await hub.runner.delete(copy)
            assert {first, second, aside, "main"} == set(hub.host.store.sessions())
            await hub.runner.delete(aside)
            assert {second, "main"} == set(hub.host.store.sessions())


def test_a_fork_in_front_of_a_log_that_counts_on_is_refused(tmp_path):
    with gateway(tmp_path, lambda _: say("Noted.")) as running:
        with chatting(running, "main") as client:
            client.ask("hello")
            client.say("clear")
            client.until("cleared")
            client.ask("anew")
        refused = running.ask("POST", "/api/sessions/main/commands", {"type": "fork", "through_seq": 1})
        assert (refused.status, refused.code) == (400, "beyond")


async def test_a_new_session_is_watched_while_somebody_slow_has_not_left_the_deleted_one_of_its_name(tmp_path):
    with ScriptedServer(lambda _: say("Noted.")) as model:
        async with hub_on(tmp_path / "w", model.base_url) as hub:
            await hub.runner.begin("main")
            await hub.runner.release("main")
            async with hub.broadcast.watch("main"):  # and reads nothing
                stream = hub.broadcast.stream("main")
                hub.host.store.delete("main")  # as another process does
                await until(lambda: stream.is_over)
                await hub.runner.begin("main")
                async with watcher(hub, "main") as seen:
                    await seen.until_type("session.created")
                    await asked(hub, "main", "hello")
                    await seen.until_type("turn.finished")
                    assert not seen.is_over
