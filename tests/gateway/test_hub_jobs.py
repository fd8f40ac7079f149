"""Jobs and people share the lane of a session: whoever comes second is queued, or steers."""

from __future__ import annotations

import json
import threading
import time
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import pytest
from gateway_kit import held
from hub_kit import Seen, hub_on, recorded, until, watcher

from lmagent.core import events as ev
from lmagent.core.commands import Approve, Close, Continue, Interrupt, SetMode, Undo
from lmagent.core.errors import LmagentError
from lmagent.core.messages import user
from lmagent.gateway.gateway import Gateway
from lmagent.gateway.turns import followed, named
from lmagent.schedule.inbox import Inbox
from lmagent.testing import ScriptedServer
from lmagent.testing.loopback import Received
from lmagent.testing.script import Reply, call, say, slow

pytestmark = pytest.mark.anyio

ASKING = call("shell", command="touch asked")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Model:
    """Answers a job with what the test wants, once it wants it, and a person at once."""

    def __init__(self, job: Reply) -> None:
        self.job = job
        self.may_go = False

    def __call__(self, received: Received) -> Reply:
        messages = received.fields["messages"]
        last = str(messages[-1]["content"])
        if "a person says" in last:
            return say("For the person.")
        if "ask first" in last:
            return ASKING
        if "tool" in (message["role"] for message in messages[-2:]):  # a note may follow the result
            return say("As far as I may.")
        while not self.may_go:
            time.sleep(0.01)
        return self.job


@asynccontextmanager
async def a_job(workspace: Path, model: Model, task: str = "count the sheep", **flags):
    """A hub in which a job's turn waits for its model; and who watches its session."""
    with ScriptedServer(model) as server:
        try:
            async with hub_on(workspace, server.base_url, **flags) as hub:
                Inbox(workspace / ".lmagent").submit(task, time.time())
                await until(lambda: bool(hub.host.store.sessions()))
                session = hub.host.store.sessions()[0]
                async with watcher(hub, session) as seen:
                    await seen.until_type("step.started")
                    yield hub, session, seen
        finally:
            model.may_go = True


def ends(hub: Gateway, session: str) -> list[tuple[str, str]]:
    return [(event.outcome, event.answer) for event in recorded(hub, session) if isinstance(event, ev.TurnFinished)]


def jobs(hub: Gateway, session: str) -> list[str]:
    return [event.origin.kind for event in recorded(hub, session) if isinstance(event, ev.InputReceived)]


def claimed(workspace: Path) -> list[Path]:
    return list((workspace / ".lmagent" / "inbox" / "claimed").iterdir())


async def test_a_message_to_a_session_in_which_a_job_runs_is_accepted_and_answered_behind_it(tmp_path):
    model = Model(say("The job is done."))
    async with a_job(tmp_path / "w", model) as (hub, session, seen):
        input = await hub.runner.submit(session, user("a person says hello"), id="one")
        assert await hub.runner.submit(session, user("a person says hello"), id="one") == input
        assert input in recorded(hub, session)
        model.may_go = True
        await seen.until_type("turn.finished", 2)
        assert ends(hub, session) == [("done", "The job is done."), ("done", "For the person.")]
        assert jobs(hub, session) == ["inbox", "web"]
        await until(lambda: not claimed(tmp_path / "w"))
        assert seen.seqs == list(range(1, len(seen.seqs) + 1))


async def test_a_person_steers_the_turn_of_a_job(tmp_path):
    model = Model(call("list_files", path="."))
    async with a_job(tmp_path / "w", model) as (hub, session, seen):
        await hub.runner.submit(session, user("be quick about it"), steer=True)
        model.may_go = True
        await seen.until_type("turn.finished")
        added = [event.message.text for event in recorded(hub, session) if isinstance(event, ev.MessageAdded)]
        assert any("be quick about it" in text and "while you work" in text for text in added)
        assert ends(hub, session) == [("done", "As far as I may.")]


async def test_who_talks_by_the_older_protocols_is_answered_behind_the_job_too(tmp_path):
    model = Model(say("The job is done."))
    async with a_job(tmp_path / "w", model) as (hub, session, _):
        desk = await named(hub, session)
        input = await hub.runner.submit(desk.id, user("a person says hello"))
        model.may_go = True
        *_, last = [event async for event in followed(hub, session, input, patience=60)]
        assert isinstance(last, ev.TurnFinished)
        assert last.answer == "For the person."


async def test_the_job_has_nobody_to_ask_and_the_person_behind_it_is_asked(tmp_path):
    model = Model(ASKING)
    async with a_job(tmp_path / "w", model, permission_mode="manual") as (hub, session, seen):
        await hub.runner.submit(session, user("now ask first"))
        model.may_go = True
        await seen.until_type("approval.requested", 2)
        resolved = [event for event in recorded(hub, session) if isinstance(event, ev.ApprovalResolved)]
        assert [(event.approved, event.by) for event in resolved] == [(False, "unattended")]
        asked = [event for event in recorded(hub, session) if isinstance(event, ev.ApprovalRequested)]
        assert await hub.runner.send(session, Approve(approval=asked[-1].id, approved=True)) is not None
        await seen.until_type("turn.finished", 2)
    assert (tmp_path / "w" / "asked").exists()


async def test_a_sub_agent_of_a_job_has_nobody_to_ask_either(tmp_path):
    def model(received: Received) -> Reply:
        messages = received.fields["messages"]
        if "Objective" in str(messages[-1]["content"]):
            return ASKING
        if "delegate it" in str(messages[-1]["content"]):
            return call("use_tool", name="delegate", arguments={"objective": "look around"})
        return say("As far as I may.")

    workspace = tmp_path / "w"
    with ScriptedServer(model) as server:
        async with hub_on(workspace, server.base_url, permission_mode="normal", sandbox="off") as hub:
            Inbox(workspace / ".lmagent").submit("delegate it", time.time())
            await until(lambda: len(hub.host.store.sessions()) == 2)
            begun = {name: recorded(hub, name) for name in hub.host.store.sessions()}
            (session,) = [
                name for name, events in begun.items() if any(isinstance(e, ev.SubagentStarted) for e in events)
            ]
            (child,) = begun.keys() - {session}
            await until(lambda: ends(hub, session) != [])
            answers = [event.by for event in recorded(hub, child) if isinstance(event, ev.ApprovalResolved)]
            assert answers == ["unattended"]
    assert not (workspace / "asked").exists()


async def test_an_interrupt_ends_the_turn_of_the_job_for_good_and_the_person_is_answered(tmp_path):
    model = Model(slow(say("never"), first=30))
    async with a_job(tmp_path / "w", model) as (hub, session, seen):
        model.may_go = True
        await hub.runner.submit(session, user("a person says hello"))
        ended = await hub.runner.send(session, Interrupt())
        assert isinstance(ended, ev.TurnFinished)
        await seen.until_type("turn.finished", 2)
        assert [outcome for outcome, _ in ends(hub, session)] == ["interrupted", "done"]
        await until(lambda: not claimed(tmp_path / "w"))


async def test_a_person_who_goes_on_with_the_turn_of_a_job_is_asked(tmp_path):
    model = Model(slow(say("never"), first=30))
    async with a_job(tmp_path / "w", model, permission_mode="manual") as (hub, session, seen):
        model.may_go = True
        await hub.runner.send(session, Interrupt())
        await seen.until_type("turn.finished")
        model.job = ASKING
        await hub.runner.send(session, Continue())
        await seen.until_type("approval.requested")
        await anyio.sleep(0.2)
        assert "approval.resolved" not in seen.types


async def test_other_commands_are_taken_while_a_job_runs_and_undo_is_refused_as_for_any_turn(tmp_path):
    model = Model(say("The job is done."))
    async with a_job(tmp_path / "w", model) as (hub, session, seen):
        assert isinstance(await hub.runner.send(session, SetMode(mode="manual")), ev.ModeChanged)
        with pytest.raises(LmagentError, match="at work"):
            await hub.runner.send(session, Undo())
        model.may_go = True
        await seen.until_type("turn.finished")


async def test_closing_the_session_of_a_job_ends_its_turn_for_good(tmp_path):
    model = Model(slow(say("never"), first=30))
    async with a_job(tmp_path / "w", model) as (hub, session, _):
        model.may_go = True
        await hub.runner.send(session, Close())
        await until(lambda: not claimed(tmp_path / "w"))
        assert [outcome for outcome, _ in ends(hub, session)] == ["interrupted"]
        assert session not in hub.host.sessions


async def test_deleting_the_session_of_a_job_ends_the_job(tmp_path):
    model = Model(slow(say("never"), first=30))
    async with a_job(tmp_path / "w", model) as (hub, session, seen):
        model.may_go = True
        await hub.runner.delete(session)
        await seen.until(lambda seen: seen.is_over)
        await until(lambda: not claimed(tmp_path / "w"))
        await anyio.sleep(0.5)
        assert not (hub.host.store.root / session).exists()


async def test_a_session_is_free_for_others_as_soon_as_its_job_is_done(tmp_path):
    workspace = tmp_path / "w"
    with ScriptedServer([say("done")]) as server:
        async with hub_on(workspace, server.base_url) as hub:
            Inbox(workspace / ".lmagent").submit("count the sheep", time.time())
            await until(lambda: bool(hub.host.store.sessions()))
            session = hub.host.store.sessions()[0]
            await until(lambda: ends(hub, session) != [])
            await until(lambda: session not in hub.host.sessions, seconds=5)
            assert ends(hub, session) == [("done", "done")]


async def test_a_job_for_a_session_that_a_person_works_in_is_queued_behind_the_person(tmp_path):
    workspace, gate = tmp_path / "w", threading.Event()
    with ScriptedServer([held(say("For the person."), gate), say("The job is done.")]) as server:
        async with hub_on(workspace, server.base_url, scheduler_poll_interval=0.1) as hub:
            desk = await hub.runner.begin()
            async with watcher(hub, desk.id) as seen:
                await hub.runner.submit(desk.id, user("work"))
                job = {"id": "now", "schedule": "startup", "prompt": "Tick.", "session_id": desk.id}
                job = {**job, "schedule": "every 1s"}
                (workspace / "cron.json").write_text(json.dumps([job]))
                await seen.until(lambda seen: "cron" in jobs(hub, desk.id))
                assert seen.types.count("turn.finished") == 0
                (workspace / "cron.json").write_text("[]")
                gate.set()
                await seen.until_type("turn.finished", 2)
            assert ends(hub, desk.id)[:2] == [("done", "For the person."), ("done", "The job is done.")]


@pytest.mark.parametrize("first", ["the scheduler", "a person"])
async def test_what_a_gateway_leaves_of_a_job_and_a_person_is_gone_on_with_whoever_comes_first(tmp_path, first):
    model = Model(slow(say("cut off"), first=30))
    model.may_go = True
    async with a_job(tmp_path / "w", model) as (hub, session, _):
        await hub.runner.submit(session, user("a person says hello"), id="one")
    model.job = say("The job is done.")
    with ScriptedServer(model) as server:
        async with hub_on(tmp_path / "w", server.base_url) as hub:
            if first == "a person":
                await hub.runner.submit(session, user("a person says hello"), id="one")
            seen: Seen
            async with watcher(hub, session) as seen:
                await seen.until_type("turn.finished", 2)
                await until(partial(_is_settled, tmp_path / "w"))
            assert ends(hub, session) == [("done", "The job is done."), ("done", "For the person.")]
            assert jobs(hub, session) == ["inbox", "web"]


def _is_settled(workspace: Path) -> bool:
    return not claimed(workspace)
