"""The hub: sessions are opened when something is wanted of them, run, watched, and released."""

from __future__ import annotations

import anyio
import pytest
from hub_kit import hub_on, recorded, until, watcher
from msgspec.structs import replace

from lmagent.app import upkeep
from lmagent.core import events as ev
from lmagent.core.commands import Approve, Interrupt, Rename, SetMode
from lmagent.core.errors import ConfigError, SessionNotFound, ShuttingDown
from lmagent.core.messages import user
from lmagent.testing import ScriptedServer
from lmagent.testing.script import call, say, slow

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_what_is_submitted_is_answered_and_watched(tmp_path):
    with ScriptedServer([say("Hello there.")]) as model:
        async with hub_on(tmp_path / "w", model.base_url) as hub:
            desk = await hub.runner.begin()
            async with watcher(hub, desk.id) as seen:
                event = await hub.runner.submit(desk.id, user("hi"), id="one")
                await seen.until_type("turn.finished")
                assert str(event.origin) == "web:one"
                assert seen.seqs == [one.seq for one in recorded(hub, desk.id)]
                assert seen.text() == "Hello there."
                assert {one["session"] for one in seen.events} == {desk.id}
            finished = await desk.until_idle()
            assert finished is not None
            assert finished.answer == "Hello there."


async def test_an_input_that_is_repeated_under_its_id_is_taken_in_once(tmp_path):
    with ScriptedServer([say("first"), say("second")]) as model:
        async with hub_on(tmp_path / "w", model.base_url) as hub:
            desk = await hub.runner.begin()
            first = await hub.runner.submit(desk.id, user("hi"), id="one")
            again = await hub.runner.submit(desk.id, user("hi"), id="one")
            await desk.until_idle()
            steered = await hub.runner.submit(desk.id, user("and?"), id="two", steer=True)
            late = await hub.runner.submit(desk.id, user("and?"), id="two", steer=True)
            await desk.until_idle()
            assert (first.seq, steered.seq) == (again.seq, late.seq)
            assert len(model.chats) == 2
        async with hub_on(tmp_path / "w", model.base_url) as hub:
            known = await hub.runner.submit(desk.id, user("hi"), id="one")
            assert known.seq == first.seq
        assert len(model.chats) == 2


async def test_the_same_input_twice_at_once_is_one_input(tmp_path):
    with ScriptedServer([say("once")]) as model:
        async with hub_on(tmp_path / "w", model.base_url) as hub:
            desk = await hub.runner.begin()
            found: list[int] = []

            async def send() -> None:
                found.append((await hub.runner.submit(desk.id, user("hi"), id="same")).seq)

            async with anyio.create_task_group() as tasks:
                for _ in range(8):
                    tasks.start_soon(send)
            await desk.until_idle()
            assert len(set(found)) == 1
            assert len(model.chats) == 1


async def test_an_id_that_is_none_is_refused_before_anything_is_recorded(tmp_path):
    with ScriptedServer() as model:
        async with hub_on(tmp_path / "w", model.base_url) as hub:
            desk = await hub.runner.begin()
            before = len(recorded(hub, desk.id))
            for wrong in ("a b", "x" * 65, "ä", "a\n"):
                with pytest.raises(ConfigError):
                    await hub.runner.submit(desk.id, user("hi"), id=wrong)
            assert len(recorded(hub, desk.id)) == before


async def test_a_session_that_is_not_there_is_not_found(tmp_path):
    with ScriptedServer() as model:
        async with hub_on(tmp_path / "w", model.base_url) as hub:
            for name in ("nothing", "../x", ""):
                with pytest.raises(SessionNotFound):
                    await hub.runner.open(name)
                with pytest.raises(SessionNotFound):
                    async with hub.broadcast.watch(name):
                        pass


async def test_commands_work_at_once_while_an_approval_waits(tmp_path):
    script = [call("shell", command="rm -rf build"), say("steered"), say("queued")]
    with ScriptedServer(script) as model:
        async with hub_on(tmp_path / "w", model.base_url, permission_mode="manual") as hub:
            desk = await hub.runner.begin()
            async with watcher(hub, desk.id) as seen:
                await hub.runner.submit(desk.id, user("clean up"))
                await seen.until_type("approval.requested")
                with anyio.fail_after(20):
                    await hub.runner.submit(desk.id, user("hurry"), steer=True)
                    await hub.runner.submit(desk.id, user("then this"))
                    await hub.runner.send(desk.id, SetMode(mode="normal"))
                    await hub.runner.send(desk.id, Rename(title="Cleaning"))
                waiting = next(iter(desk.session.state.approvals.values()))
                resolved = await hub.runner.send(desk.id, Approve(approval=waiting.id, approved=False))
                assert isinstance(resolved, ev.ApprovalResolved)
                assert resolved.by == "web"
                assert await hub.runner.send(desk.id, Approve(approval=waiting.id, approved=True)) is None
                await seen.until_type("turn.finished", 2)
                assert seen.seqs == list(range(1, len(seen.seqs) + 1))


async def test_an_interrupt_ends_a_turn_whose_approval_waits(tmp_path):
    with ScriptedServer([call("shell", command="rm -rf build")]) as model:
        async with hub_on(tmp_path / "w", model.base_url, permission_mode="manual") as hub:
            desk = await hub.runner.begin()
            async with watcher(hub, desk.id) as seen:
                await hub.runner.submit(desk.id, user("clean up"))
                await seen.until_type("approval.requested")
                await hub.runner.send(desk.id, Interrupt())
                finished = await desk.until_idle()
                assert finished is not None
                assert finished.outcome == "interrupted"


async def test_an_approval_that_nobody_answers_counts_as_denied_after_its_time(tmp_path, monkeypatch):
    monkeypatch.setattr(upkeep, "TICK", 0.05)
    script = [call("shell", command="rm -rf build"), say("well")]
    with ScriptedServer(script) as model:
        async with hub_on(tmp_path / "w", model.base_url, permission_mode="manual") as hub:
            hub.host.settings = replace(hub.host.settings, approval_timeout=0.2)
            desk = await hub.runner.begin()
            await hub.runner.submit(desk.id, user("clean up"))
            await desk.until_idle()
            resolved = [event for event in recorded(hub, desk.id) if isinstance(event, ev.ApprovalResolved)]
            assert [(one.approved, one.by) for one in resolved] == [(False, "web:timeout")]


async def test_a_turn_that_runs_when_the_gateway_ends_is_gone_on_with_by_the_next(tmp_path):
    script = [slow(say("never heard of"), first=30), say("All done.")]
    with ScriptedServer(script) as model:
        async with hub_on(tmp_path / "w", model.base_url) as hub:
            desk = await hub.runner.begin()
            async with watcher(hub, desk.id) as seen:
                await hub.runner.submit(desk.id, user("work"), id="task")
                await until(lambda: model.left == 1)
                await hub.end()
                await seen.until(lambda seen: seen.is_over)
            with pytest.raises(ShuttingDown):
                await hub.runner.submit(desk.id, user("more"))
        async with hub_on(tmp_path / "w", model.base_url) as hub:
            async with watcher(hub, desk.id) as seen:
                await seen.until_type("turn.finished")
                assert seen.seqs == list(range(1, len(seen.seqs) + 1))
                assert seen.types.count("input.received") == 1
            finished = await (await hub.runner.open(desk.id)).until_idle()
            assert finished is None or finished.answer == "All done."
