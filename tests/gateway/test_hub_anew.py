"""A session whose id begins a new conversation: nobody folds events of two logs together, and nobody misses one."""

from __future__ import annotations

import contextlib
import json
import threading

import anyio
import anyio.lowlevel
import msgspec
import pytest
from gateway_kit import gateway
from hub_kit import asked, hub_on, recorded, until, watcher
from seed_client import chatting

from lmagent.app import upkeep
from lmagent.core import events as ev
from lmagent.core.errors import SessionBusy
from lmagent.core.messages import user
from lmagent.core.view import View, reduce
from lmagent.gateway.broadcast.broadcast import BEGINNING
from lmagent.gateway.compat.socket import begin_anew
from lmagent.gateway.http.errors import Refusal
from lmagent.gateway.turns import followed
from lmagent.testing import ScriptedServer
from lmagent.testing.script import say, slow

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def viewed(events) -> View:
    view = View()
    for event in events:
        view = reduce(view, event)
    return view


@pytest.mark.parametrize("said_since", [0, 1, 5])
async def test_who_was_away_during_a_clear_is_given_all_of_the_new_conversation_and_nothing_else(tmp_path, said_since):
    with ScriptedServer(lambda _: say("Noted.")) as model:
        async with hub_on(tmp_path / "w", model.base_url) as hub:
            session = (await hub.runner.begin("main")).id
            await asked(hub, session, "one", "two")
            old = recorded(hub, session)
            aside = await begin_anew(hub, session)
            await asked(hub, session, *(f"new {number}" for number in range(said_since)))
            new = recorded(hub, session)
            assert new[0].seq == old[-1].seq + 1
            assert isinstance(new[0], ev.SessionCreated)
            assert new[0].replaces == aside
            assert recorded(hub, aside)[: len(old)] == old
            wanted = viewed(new)
            for after in range(len(old) + 1):  # the last one of them has seen all that there was
                async with watcher(hub, session, after=after) as seen:
                    await seen.until(lambda seen: len(seen.seqs) >= len(new))
                    assert seen.seqs == [event.seq for event in new]
                came = [ev.decode(json.dumps(event).encode()) for event in seen.events if event.get("seq")]
                assert viewed([*old[:after], *came]) == wanted
            _, view, blocks = await hub.views.look(session)
            assert msgspec.structs.replace(view, blocks=blocks) == wanted


async def test_a_clear_twice_over_counts_on(tmp_path):
    with ScriptedServer(lambda _: say("Noted.")) as model:
        async with hub_on(tmp_path / "w", model.base_url) as hub:
            session = (await hub.runner.begin("main")).id
            await asked(hub, session, "one")
            last = 0
            for _ in range(3):
                seqs = [event.seq for event in recorded(hub, session)]
                assert min(seqs) > last
                last = max(seqs)
                await begin_anew(hub, session)
                await asked(hub, session, "again")


async def test_another_gateway_that_watches_from_afar_gives_the_new_conversation_too(tmp_path):
    with ScriptedServer(lambda _: say("Noted.")) as model:
        async with hub_on(tmp_path / "w", model.base_url) as hub, hub_on(tmp_path / "w", model.base_url) as other:
            session = (await hub.runner.begin("main")).id
            await asked(hub, session, "one")
            async with watcher(other, session) as seen:
                await seen.until_type("turn.finished")
                await other.views.look(session)
                await begin_anew(hub, session)
                await asked(hub, session, *(f"a longer message than any before {number}" for number in range(4)))
                new = recorded(hub, session)
                await seen.until(lambda seen: seen.seqs[-1] == new[-1].seq)
                assert seen.seqs[-len(new) :] == [event.seq for event in new]
            _, view, blocks = await other.views.look(session)
            assert msgspec.structs.replace(view, blocks=blocks) == viewed(new)


async def test_another_process_that_looks_at_the_session_now_and_then_keeps_nobody_from_clearing_it(tmp_path):
    with ScriptedServer(lambda _: say("Noted.")) as model:
        async with hub_on(tmp_path / "w", model.base_url) as hub:
            session = (await hub.runner.begin("main")).id
            looks, is_over = list[int](), threading.Event()

            def look() -> None:
                while not is_over.wait(0.001):
                    with contextlib.suppress(SessionBusy):
                        hub.host.store.open(session).close()
                        looks.append(1)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(anyio.to_thread.run_sync, look)
                try:
                    while len(looks) < 100:
                        await asked(hub, session, "one")
                        assert await begin_anew(hub, session)
                finally:
                    is_over.set()


async def test_a_gateway_that_finds_nothing_left_in_a_session_lets_it_go_at_once(tmp_path, monkeypatch):
    with ScriptedServer(lambda _: say("Noted.")) as model:
        async with hub_on(tmp_path / "w", model.base_url) as hub:
            session = (await hub.runner.begin("main")).id
            await hub.runner.submit(session, user("one"))
            rows = upkeep.unattended(hub.host.store)  # another gateway sees this, and looks a moment later
            await hub.runner.sessions[session].until_idle()
            await hub.runner.release(session)
            assert [row.session for row in rows] == [session]
            looked = anyio.Event()

            def stale(_store, free=False):
                anyio.from_thread.run_sync(looked.set)
                return rows

            monkeypatch.setattr(upkeep, "unattended", stale)
            async with hub_on(tmp_path / "w", model.base_url) as other:
                await looked.wait()
                with anyio.fail_after(20):
                    while session not in other.runner.sessions:  # it opens it, and finds that all is done
                        await anyio.lowlevel.checkpoint()
                await until(lambda: other.runner.sessions == {}, seconds=5)
                await asked(hub, session, "two")


async def test_who_follows_all_sessions_is_told_of_the_new_conversation_once(tmp_path):
    with ScriptedServer(lambda _: say("Noted.")) as model:
        async with hub_on(tmp_path / "w", model.base_url) as hub:
            session = (await hub.runner.begin("main")).id
            await asked(hub, session, "one")
            async with hub.broadcast.watch_all(BEGINNING) as following:
                cursor = (await following.take())[-1].cursor
            await begin_anew(hub, session)
            await asked(hub, session, "two")
            new, told = recorded(hub, session), list[int]()
            async with hub.broadcast.watch_all(cursor) as following:
                with anyio.fail_after(20):
                    while not told or told[-1] < new[-1].seq:
                        events = [json.loads(one.data) for one in await following.take()]
                        told += [event["seq"] for event in events if event["session"] == session]
            assert told == [event.seq for event in new]


async def test_a_message_that_somebody_follows_while_it_is_cleared_ends_with_the_reason(tmp_path):
    with ScriptedServer([slow(say("never"), first=30)]) as model:
        async with hub_on(tmp_path / "w", model.base_url) as hub:
            session = (await hub.runner.begin("main")).id
            input = await hub.runner.submit(session, user("one"))
            await until(lambda: hub.runner.usable(session) is not None and hub.runner.sessions[session].session.running)
            ended: list[object] = []

            async def follow() -> None:
                try:
                    ended.extend([event async for event in followed(hub, session, input, patience=60)])
                except Refusal as refusal:
                    ended.append(refusal)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(follow)
                await anyio.sleep(0.1)
                await begin_anew(hub, session)
            assert isinstance(ended[-1], Refusal | ev.TurnFinished)


def test_over_http_too_and_what_lies_beyond_the_end_is_refused(tmp_path):
    with gateway(tmp_path, lambda _: say("Noted.")) as running:
        with chatting(running, "main") as client:
            client.ask("one")
            end = running.ask("GET", "/api/sessions/main/view").json["seq"]
            client.say("clear")
            client.until("cleared")
            client.ask("two")
        new = running.ask("GET", "/api/sessions/main/view").json["seq"]
        assert new > end
        for after in (1, end - 1, end):
            with running.stream(f"/api/sessions/main/events?after={after}") as events:
                told = [next(iter(events))]
                assert told[0].json["type"] == "session.created"
                assert told[0].json["replaces"].startswith("main.")
                assert int(told[0].id) == end + 1
        refused = running.ask("GET", f"/api/sessions/main/events?after={new + 1}")
        assert (refused.status, refused.code) == (400, "beyond")
