"""What a gateway goes on with, or a job runs, waits for a model server that is not there; a person is told at once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import anyio
import pytest
from hub_kit import Seen, asked, hub_on, recorded, until, watcher

from lmagent.core import events as ev
from lmagent.core.commands import Interrupt
from lmagent.core.live import AWAY, BACK
from lmagent.core.messages import user
from lmagent.engine import outage
from lmagent.gateway.gateway import Gateway
from lmagent.schedule.inbox import Inbox
from lmagent.testing import ScriptedServer
from lmagent.testing.loopback import held_port
from lmagent.testing.script import call, cut, say, slow, status

pytestmark = pytest.mark.anyio

SCRIPT = [slow(say("cut off"), first=30)]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def hurry(monkeypatch):
    monkeypatch.setattr(outage, "PAUSES", (0.1, 0.2))
    monkeypatch.setattr(outage, "ASKED", 0.2)


@pytest.fixture
def port() -> Iterator[int]:
    """That of the model server, whenever there is one."""
    with held_port() as held:
        yield held


async def left_open(workspace: Path, port: int) -> str:
    """A session whose turn a gateway has left; its model server is gone from that port."""
    with ScriptedServer(SCRIPT, port=port) as server:
        async with hub_on(workspace, server.base_url) as hub:
            desk = await hub.runner.begin()
            await hub.runner.submit(desk.id, user("work"), id="one")
            await until(lambda: any(isinstance(event, ev.StepStarted) for event in recorded(hub, desk.id)))
        return desk.id


@asynccontextmanager
async def restarted(workspace: Path, port: int, session: str, **flags):
    """The next gateway, and who watches the session."""
    async with hub_on(workspace, f"http://127.0.0.1:{port}/v1", llm_max_retries=0, **flags) as hub:
        async with watcher(hub, session) as seen:
            yield hub, seen


def notices(seen: Seen) -> list[str]:
    return [event["code"] for event in seen.events if event["type"] == "notice"]


def ends(hub: Gateway, session: str) -> list[str]:
    return [event.outcome for event in recorded(hub, session) if isinstance(event, ev.TurnFinished)]


async def test_a_turn_that_is_gone_on_with_waits_for_its_model_server_and_says_so(tmp_path, port):
    session = await left_open(tmp_path / "w", port)
    async with restarted(tmp_path / "w", port, session) as (hub, seen):
        await seen.until(lambda seen: len([event for event in seen.events if event["type"] == "retrying"]) > 3)
        _, view, _ = await hub.views.look(session)
        assert view.state == "retrying"
        told = next(event for event in seen.events if event["type"] == "notice")
        assert str(port) in told["text"]
        assert "waits for the model server" in told["text"]
        async with watcher(hub, session, after=seen.seqs[-1]) as late:
            await late.until_type("retrying")
            assert str(port) in late.events[0]["reason"]
        with ScriptedServer([say("All done.")], port=port):
            await seen.until_type("turn.finished")
        assert ends(hub, session) == ["done"]
        assert notices(seen) == [AWAY, BACK]
        assert seen.types.count("step.started") == 2  # that of before, and one for all the tries


async def test_a_turn_that_waits_is_interrupted_after_a_second_restart_too(tmp_path, port):
    session = await left_open(tmp_path / "w", port)
    async with restarted(tmp_path / "w", port, session) as (hub, seen):
        await seen.until_type("retrying")
    assert ends(hub, session) == []
    async with restarted(tmp_path / "w", port, session) as (hub, seen):
        await seen.until_type("retrying")
        ended = await hub.runner.send(session, Interrupt())
        assert isinstance(ended, ev.TurnFinished)
        assert ended.outcome == "interrupted"
    async with restarted(tmp_path / "w", port, session) as (hub, seen):
        await anyio.sleep(0.5)
        assert ends(hub, session) == ["interrupted"]


async def test_a_message_that_was_accepted_and_not_begun_waits_too_and_a_new_one_is_answered_at_once(tmp_path, port):
    with ScriptedServer(SCRIPT, port=port) as server:
        async with hub_on(tmp_path / "w", server.base_url) as hub:
            desk = await hub.runner.begin()
            await hub.runner.submit(desk.id, user("first"), id="one")
            await until(lambda: any(isinstance(event, ev.StepStarted) for event in recorded(hub, desk.id)))
            await hub.runner.submit(desk.id, user("second"), id="two")
        session = desk.id
    async with restarted(tmp_path / "w", port, session) as (hub, seen):
        await seen.until_type("retrying")
        await hub.runner.send(session, Interrupt())
        await seen.until(lambda seen: notices(seen).count(AWAY) == 2)
        await hub.runner.submit(session, user("third"), id="three")
        await hub.runner.send(session, Interrupt())
        await seen.until_type("turn.finished", 3)
        assert ends(hub, session) == ["interrupted", "interrupted", "error"]


async def test_a_new_message_is_told_at_once_that_no_model_server_can_be_reached(tmp_path, port):
    async with hub_on(tmp_path / "w", f"http://127.0.0.1:{port}/v1", llm_max_retries=0) as hub:
        desk = await hub.runner.begin()
        await hub.runner.submit(desk.id, user("hello"))
        ended = await desk.until_idle()
        assert ended is not None
        assert (ended.outcome, ended.cause) == ("error", "Unreachable")


async def test_a_server_that_dies_in_the_middle_of_a_turn_that_was_gone_on_with_is_waited_for(tmp_path, port):
    session = await left_open(tmp_path / "w", port)
    with ExitStack() as server:
        server.enter_context(ScriptedServer([call("list_files", path="."), slow(say("cut off"), first=30)], port=port))
        async with restarted(tmp_path / "w", port, session) as (hub, seen):
            await seen.until_type("tool.finished")
            await seen.until_type("step.started", 3)
            server.close()
            await seen.until_type("retrying")
            with ScriptedServer([say("All done.")], port=port):
                await seen.until_type("turn.finished")
            assert ends(hub, session) == ["done"]


@pytest.mark.parametrize(
    "answer",
    [
        status(502, "<html><title>502 Bad Gateway</title></html>"),
        status(503, {"error": "no backend is up"}),
        status(504),
        status(429, headers={"Retry-After": "0"}),
        cut(say("It was cut off here"), chunks=1, reset=True),
        cut(say("It was cut off here"), chunks=1),
    ],
    ids=["502", "503", "504", "429", "reset", "cut"],
)
async def test_a_server_that_somebody_else_answers_for_or_that_breaks_off_is_waited_for_too(tmp_path, port, answer):
    session = await left_open(tmp_path / "w", port)
    with ScriptedServer([*[answer] * 4, say("All done.")], port=port):
        async with restarted(tmp_path / "w", port, session) as (hub, seen):
            await seen.until_type("turn.finished")
            assert ends(hub, session) == ["done"]
            assert notices(seen) == [AWAY, BACK]
            messages = [event for event in recorded(hub, session) if isinstance(event, ev.MessageAdded)]
            assert [event.message.text for event in messages if event.origin == "model"] == ["All done."]


@pytest.mark.parametrize("chunks", [0, 3])
async def test_a_server_that_breaks_off_each_time_is_believed_to_die_of_the_request(tmp_path, port, chunks):
    session = await left_open(tmp_path / "w", port)
    with ScriptedServer(lambda _: cut(say("It was cut off here"), chunks=chunks, reset=True), port=port) as server:
        async with restarted(tmp_path / "w", port, session) as (hub, seen):
            await seen.until_type("turn.finished")
            assert ends(hub, session) == ["error"]
            assert len(server.chats) == outage.LOST + 1


async def test_a_server_that_dies_of_the_request_is_away_in_between_each_time(tmp_path, port):
    session = await left_open(tmp_path / "w", port)
    replies = [cut(say("It was cut off here"), chunks=3, reset=True), status(503, {"error": "it comes up"})]
    with ScriptedServer(replies * (outage.LOST + 1), port=port) as server:
        async with restarted(tmp_path / "w", port, session) as (hub, seen):
            await seen.until_type("turn.finished")
            assert ends(hub, session) == ["error"]
            assert len(server.chats) == 2 * outage.LOST + 1


async def test_a_server_that_asks_for_longer_than_a_turn_waits_does_not_get_it(tmp_path, port, monkeypatch):
    session = await left_open(tmp_path / "w", port)
    monkeypatch.setattr("lmagent.app.upkeep.PATIENCE", 1.0)
    with ScriptedServer(lambda _: status(429, headers={"Retry-After": "400"}), port=port):
        async with restarted(tmp_path / "w", port, session) as (hub, seen):
            await seen.until_type("turn.finished")
            assert ends(hub, session) == ["error"]


async def test_what_a_server_asks_for_before_the_next_try_is_kept_to(tmp_path, port):
    session = await left_open(tmp_path / "w", port)
    with ScriptedServer([status(429, headers={"Retry-After": "400"}), say("All done.")], port=port):
        async with restarted(tmp_path / "w", port, session) as (hub, seen):
            await seen.until_type("retrying")
            (told,) = [event for event in seen.events if event["type"] == "retrying"]
            assert told["delay"] == 400
            await hub.runner.send(session, Interrupt())
            await seen.until_type("turn.finished")


async def test_a_fault_of_the_server_is_no_outage(tmp_path, port):
    session = await left_open(tmp_path / "w", port)
    with ScriptedServer(lambda _: status(500, {"error": "the template is broken"}), port=port):
        async with restarted(tmp_path / "w", port, session) as (hub, seen):
            await seen.until_type("turn.finished")
            assert ends(hub, session) == ["error"]


async def test_a_turn_waits_for_a_day_and_then_ends_as_an_error(tmp_path, port, monkeypatch):
    session = await left_open(tmp_path / "w", port)
    monkeypatch.setattr("lmagent.app.upkeep.PATIENCE", 0.5)
    async with restarted(tmp_path / "w", port, session) as (hub, seen):
        await seen.until_type("turn.finished")
        assert ends(hub, session) == ["error"]


async def test_a_job_waits_for_the_model_server_on_the_lane_and_a_person_can_stop_it(tmp_path, port):
    workspace = tmp_path / "w"
    async with hub_on(workspace, f"http://127.0.0.1:{port}/v1", llm_max_retries=0, scheduler_poll_interval=0.1) as hub:
        inbox = Inbox(workspace / ".lmagent")
        for task in ("count the sheep", "count the goats"):
            inbox.submit(task, time.time())
        await until(lambda: len(hub.host.sessions) == 2)
        first, second = hub.host.sessions
        async with watcher(hub, first) as seen, watcher(hub, second) as other:
            await seen.until_type("retrying")
            await other.until_type("retrying")
            await hub.runner.send(first, Interrupt())
            await seen.until_type("turn.finished")
            with ScriptedServer([say("Counted.")], port=port):
                await other.until_type("turn.finished")
        assert (ends(hub, first), ends(hub, second)) == (["interrupted"], ["done"])
        await until(lambda: not list((workspace / ".lmagent" / "inbox" / "claimed").iterdir()))


async def test_a_summary_that_the_turn_needs_is_waited_for_too(tmp_path, port):
    with ScriptedServer([*[say("Noted. " * 500)] * 5, slow(say("cut off"), first=30)], port=port) as server:
        async with hub_on(tmp_path / "w", server.base_url, context_window=100_000) as hub:
            await hub.runner.begin("main")
            await asked(hub, "main", *(f"part {number} " * 1000 for number in range(5)))
            await hub.runner.submit("main", user("work"), id="one")
            await until(lambda: recorded(hub, "main")[-1].turn == 6 and hub.host.sessions["main"].state.step == 1)
    async with restarted(tmp_path / "w", port, "main", context_window=16_000) as (hub, seen):
        await seen.until_type("retrying", 2)
        with ScriptedServer(lambda _: say("It is all about parts."), port=port):
            await seen.until_type("turn.finished", 6)
        (done,) = [event for event in recorded(hub, "main") if isinstance(event, ev.CompactionDone)]
        assert done.summary == "It is all about parts."
        assert notices(seen)[:2] == [AWAY, BACK]
