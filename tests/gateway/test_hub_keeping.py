"""What a hub does by itself: it releases what is idle, keeps what is needed, and goes on with what was accepted."""

from __future__ import annotations

import time
from functools import partial

import anyio
import pytest
from hub_kit import hub_on, recorded, until, watcher
from msgspec.structs import replace

from lmagent.app import upkeep
from lmagent.core import events as ev
from lmagent.core.commands import Approve, Close, Interrupt, SetMode
from lmagent.core.errors import SessionBusy, SessionNotFound
from lmagent.core.messages import user
from lmagent.providers.served import SessionProvider
from lmagent.testing import ScriptedServer
from lmagent.testing.script import call, say, slow

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def hurry(monkeypatch):
    """Seconds become tenths of them."""
    for name in ("TICK", "LEFT", "LOOK"):
        monkeypatch.setattr(upkeep, name, getattr(upkeep, name) / 20)
    monkeypatch.setattr(upkeep, "IDLE", 1.5)


async def test_a_session_is_released_after_its_last_watcher_has_gone(tmp_path, hurry, monkeypatch):
    monkeypatch.setattr(upkeep, "IDLE", 120.0)
    with ScriptedServer([say("hello")]) as model:
        async with hub_on(tmp_path / "w", model.base_url) as hub:
            desk = await hub.runner.begin()
            async with watcher(hub, desk.id) as seen:
                await hub.runner.submit(desk.id, user("hi"))
                await seen.until_type("turn.finished")
                await anyio.sleep(0.7)
                assert hub.runner.usable(desk.id) is not None
            await until(lambda: hub.runner.usable(desk.id) is None)
            assert not hub.host.store.is_running(desk.id)
            assert desk.id not in hub.broadcast.streams


async def test_an_idle_session_that_is_watched_is_released_so_that_a_terminal_can_have_it(tmp_path, hurry):
    with ScriptedServer([say("hello")]) as model:
        async with hub_on(tmp_path / "w", model.base_url) as hub:
            desk = await hub.runner.begin()
            async with watcher(hub, desk.id) as seen:
                await until(lambda: hub.runner.usable(desk.id) is None)
                log = hub.host.store.open(desk.id)  # as another process does
                try:
                    with pytest.raises(SessionBusy):
                        await hub.runner.submit(desk.id, user("hi"))
                    await log.append(ev.Notice(level="info", code="x", text="from elsewhere"))
                    await seen.until_type("notice")
                finally:
                    log.close()
                await hub.runner.submit(desk.id, user("hi"))
                await seen.until_type("turn.finished")
                assert seen.seqs == [event.seq for event in recorded(hub, desk.id)]
                assert seen.text() == "hello"


async def test_a_session_in_which_something_runs_is_not_released(tmp_path, hurry):
    script = [call("shell", command="sleep 60", background=True), say("it runs"), slow(say("late"), first=60)]
    with ScriptedServer(script) as model:
        async with hub_on(tmp_path / "w", model.base_url, permission_mode="auto", sandbox="off") as hub:
            desk = await hub.runner.begin()
            await hub.runner.submit(desk.id, user("run it"))
            await desk.until_idle()
            assert hub.host.registry.is_busy(desk.id)
            await anyio.sleep(1.5)
            assert hub.runner.usable(desk.id) is desk
            await hub.runner.submit(desk.id, user("slowly"))
            await anyio.sleep(1.5)
            assert hub.runner.usable(desk.id) is desk


async def test_what_a_person_granted_and_chose_holds_after_a_release_in_the_same_process(tmp_path):
    script = [call("shell", command="touch a"), say("one"), call("shell", command="touch a"), say("two")]
    with ScriptedServer(script) as model:
        async with hub_on(tmp_path / "w", model.base_url, permission_mode="manual", sandbox="off") as hub:
            desk = await hub.runner.begin()
            other = await hub.runner.begin()
            async with watcher(hub, desk.id) as seen:
                await hub.runner.submit(desk.id, user("touch it"))
                await seen.until_type("approval.requested")
                asked = next(iter(desk.session.state.approvals.values()))
                await hub.runner.send(desk.id, Approve(approval=asked.id, approved=True, scope="session"))
                await seen.until_type("turn.finished")
                await hub.runner.send(desk.id, SetMode(mode="normal"))
                lane = desk.session.wiring.provider
                await hub.runner.send(desk.id, Close())
                assert hub.runner.usable(desk.id) is None
                again = await hub.runner.open(desk.id)
                assert again.session.state.mode == "normal"
                assert asked.grant in again.session.state.grants
                assert isinstance(lane, SessionProvider)
                assert isinstance(again.session.wiring.provider, SessionProvider)
                assert again.session.wiring.provider.conversation.number == lane.conversation.number
                await hub.runner.submit(desk.id, user("again"))
                await seen.until_type("turn.finished", 2)
                assert seen.types.count("approval.requested") == 1
            assert other.session.state.mode == "manual"
        async with hub_on(tmp_path / "w", model.base_url, permission_mode="manual", sandbox="off") as hub:
            fresh = await hub.runner.open(desk.id)
            assert fresh.session.state.grants == []
            assert fresh.session.state.mode == "manual"


async def test_an_approval_that_waits_when_the_gateway_ends_is_asked_again_by_the_next(tmp_path):
    script = [call("shell", command="touch a"), say("done")]
    with ScriptedServer(script) as model:
        flags = {"permission_mode": "manual", "sandbox": "off"}
        async with hub_on(tmp_path / "w", model.base_url, **flags) as hub:
            desk = await hub.runner.begin()
            async with watcher(hub, desk.id) as seen:
                await hub.runner.submit(desk.id, user("touch it"))
                await seen.until_type("approval.requested")
        async with hub_on(tmp_path / "w", model.base_url, **flags) as hub:
            await until(lambda: hub.runner.usable(desk.id) is not None and hub.runner.usable(desk.id).is_working)
            async with watcher(hub, desk.id) as seen:
                await seen.until_type("approval.requested")
                asked = next(event for event in seen.events if event["type"] == "approval.requested")
                await hub.runner.send(desk.id, Approve(approval=asked["id"], approved=True))
                await seen.until_type("turn.finished")
                assert seen.types.count("approval.requested") == 1
                assert seen.types.count("tool.started") == 1
        assert (tmp_path / "w" / "a").exists()


async def test_a_session_that_waits_is_woken_once_in_time(tmp_path, hurry):
    with ScriptedServer([say("WAIT: +1s: for the paint to dry"), say("It is dry.")]) as model:
        async with hub_on(tmp_path / "w", model.base_url) as hub:
            desk = await hub.runner.begin()
            async with watcher(hub, desk.id) as seen:
                await hub.runner.submit(desk.id, user("paint"))
                await seen.until_type("turn.finished", 2)
                woken = [event for event in seen.events if event["type"] == "input.received"][1:]
                assert [event["origin"]["kind"] for event in woken] == ["wait"]
                finished = [event for event in seen.events if event["type"] == "turn.finished"]
                assert 0 <= woken[0]["ts"] - finished[0]["until"] < 3


async def test_a_session_whose_wait_ended_while_no_gateway_ran_is_woken_with_somebody_to_ask(tmp_path, hurry):
    script = [say("WAIT: +1s: a moment"), call("shell", command="touch a"), say("done")]
    with ScriptedServer(script) as model:
        flags = {"permission_mode": "manual", "sandbox": "off"}
        async with hub_on(tmp_path / "w", model.base_url, **flags) as hub:
            desk = await hub.runner.begin()
            await hub.runner.submit(desk.id, user("wait"))
            await desk.until_idle()
        await anyio.sleep(1.2)
        async with hub_on(tmp_path / "w", model.base_url, **flags) as hub:
            async with watcher(hub, desk.id) as seen:
                await seen.until_type("approval.requested")
                assert seen.types.count("input.received") == 2
                await hub.runner.send(desk.id, Interrupt())
                await seen.until_type("turn.finished", 2)


async def test_work_that_another_gateway_left_is_gone_on_with_once_it_has_gone(tmp_path, hurry):
    script = [slow(say("cut off"), first=30), say("done by the other")]
    with ScriptedServer(script) as model:
        async with hub_on(tmp_path / "w", model.base_url) as hub:
            async with hub_on(tmp_path / "w", model.base_url) as first:
                desk = await first.runner.begin()
                async with watcher(hub, desk.id) as seen:
                    await first.runner.submit(desk.id, user("work"))
                    await seen.until_type("step.started")
                    await until(lambda: model.left == 1)
                    with pytest.raises(SessionBusy, match="already open"):
                        await hub.runner.open(desk.id)
            async with watcher(hub, desk.id) as seen:
                await seen.until_type("turn.finished")
                assert seen.seqs == [event.seq for event in recorded(hub, desk.id)]


async def test_what_is_sent_while_a_session_is_released_is_done(tmp_path):
    with ScriptedServer([say(str(number)) for number in range(20)]) as model:
        async with hub_on(tmp_path / "w", model.base_url) as hub:
            desk = await hub.runner.begin()
            for number in range(20):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(partial(hub.runner.release, desk.id, unless=lambda desk: desk.is_needed))
                    for _ in range(number % 5):
                        await anyio.lowlevel.checkpoint()
                    await hub.runner.submit(desk.id, user("hi"), id=str(number))
                await (await hub.runner.open(desk.id)).until_idle()
            inputs = [event for event in recorded(hub, desk.id) if isinstance(event, ev.InputReceived)]
            assert [str(event.origin) for event in inputs] == [f"web:{number}" for number in range(20)]
            assert len(model.chats) == 20


async def test_a_sub_agent_at_work_is_steered_and_stopped_but_given_no_turn_of_its_own(tmp_path):
    def model_of(received):
        text = str(received.fields["messages"][-1]["content"])
        if "look around" in text or "Objective" in text:
            return slow(say("never"), first=30)
        if "delegate it" in text:
            arguments = {"objective": "look around"}
            return call("use_tool", name="delegate", arguments=arguments)
        return say("It was stopped.")

    with ScriptedServer(model_of) as model:
        async with hub_on(tmp_path / "w", model.base_url) as hub:
            desk = await hub.runner.begin()
            async with watcher(hub, desk.id) as seen:
                await hub.runner.submit(desk.id, user("delegate it"))
                await seen.until_type("subagent.started")
                child = next(event["child"] for event in seen.events if event["type"] == "subagent.started")
                await until(lambda: child in hub.host.sessions)
                async with watcher(hub, child) as below:
                    await below.until_type("step.started")
                    with pytest.raises(SessionBusy):
                        await hub.runner.submit(child, user("hello"))
                    with pytest.raises(SessionBusy):
                        await hub.runner.open(child)
                    await hub.runner.submit(child, user("faster"), steer=True, id="s1")
                    await hub.runner.send(child, Interrupt())
                    await below.until_type("turn.finished")
                    assert below.seqs == list(range(1, len(below.seqs) + 1))
                await seen.until_type("turn.finished")
            assert child not in hub.runner.sessions


async def test_deleting_a_session_that_runs_ends_it_for_good(tmp_path):
    with ScriptedServer([slow(say("never"), first=30)]) as model:
        async with hub_on(tmp_path / "w", model.base_url) as hub:
            desk = await hub.runner.begin()
            async with watcher(hub, desk.id) as seen:
                await hub.runner.submit(desk.id, user("work"))
                await seen.until_type("step.started")
                began = time.monotonic()
                await hub.runner.delete(desk.id)
                assert time.monotonic() - began < 10
                await seen.until(lambda seen: seen.is_over)
            with pytest.raises(SessionNotFound):
                await hub.runner.open(desk.id)
            with pytest.raises(SessionNotFound):
                await hub.runner.delete(desk.id)
            assert not (hub.host.store.root / desk.id).exists()


async def test_a_session_that_another_process_deletes_ends_its_watchers(tmp_path):
    with ScriptedServer() as model:
        async with hub_on(tmp_path / "w", model.base_url) as hub:
            desk = await hub.runner.begin()
            await hub.runner.send(desk.id, Close())
            async with watcher(hub, desk.id) as seen:
                await seen.until_type("session.created")
                hub.host.store.delete(desk.id)
                await seen.until(lambda seen: seen.is_over)


async def test_a_log_that_cannot_be_read_any_more_ends_its_watchers_and_nothing_else(tmp_path):
    with ScriptedServer([say("hello")]) as model:
        async with hub_on(tmp_path / "w", model.base_url) as hub:
            desk, other = await hub.runner.begin(), await hub.runner.begin()
            await hub.runner.send(desk.id, Close())
            async with watcher(hub, desk.id) as seen:
                await seen.until_type("session.created")
                folder = hub.host.store.root / desk.id
                folder.rename(tmp_path / "away")
                folder.symlink_to(folder.name)  # leads to itself: the system refuses to look
                await seen.until(lambda seen: seen.is_over)
            await hub.runner.submit(other.id, user("hi"))
            assert (await other.until_idle()).answer == "hello"


async def test_a_fault_in_one_session_leaves_the_others_alone(tmp_path, hurry):
    with ScriptedServer([say("well")]) as model:
        async with hub_on(tmp_path / "w", model.base_url) as hub:
            broken, sound = await hub.runner.begin(), await hub.runner.begin()
            broken.session.agent = replace(broken.session.agent, limits=None)  # whatever goes wrong
            await hub.runner.submit(broken.id, user("break"))
            await broken.until_idle()
            await hub.runner.submit(sound.id, user("hi"))
            finished = await sound.until_idle()
            assert finished is not None
            assert finished.answer == "well"
            await until(lambda: broken.id not in hub.runner.sessions)
