"""A channel: whatever is opened, written, released, joined and left, a watcher has each recorded event once."""

from __future__ import annotations

import json

import anyio
import pytest
from hub_kit import Seen
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lmagent.app.clock import SystemClock
from lmagent.core import events as ev
from lmagent.core.messages import assistant, user
from lmagent.gateway.broadcast.stream import MOST_FRAMES, Flusher, Frame, Reader, SessionStream, Stream, framed
from lmagent.store.jsonl import JsonlStore
from lmagent.store.log import EVENTS, JsonlLog

SESSION = "20260102_030405_a1b2c3"


class OpenLog:
    """As much of a session as a channel sees: it records, and tells its listeners in the same moment."""

    def __init__(self, log: JsonlLog, last: int) -> None:
        self._log = log
        self._listeners: list = []
        self.seq = last

    @property
    def state(self) -> OpenLog:
        return self

    def listen(self, listener):
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    async def record(self, event: ev.DurableEvent) -> None:
        stored = await self._log.append(event)
        self.seq = stored.seq
        self.emit(stored)

    def emit(self, event: ev.Event) -> None:
        for listener in self._listeners:
            listener(event)

    def close(self) -> None:
        self._log.close()


class Stage:
    """A channel, its session's log, and whoever watches."""

    def __init__(self, root, tasks) -> None:
        self.store = JsonlStore(root, SystemClock())
        self.log = root / SESSION / EVENTS
        self.pulse = Flusher()
        self.channel = SessionStream(SESSION, self.store, self.pulse)
        self.tasks = tasks
        self.here: OpenLog | None = None
        self.count = 0
        self.watchers: dict[int, tuple[Seen, anyio.CancelScope, anyio.Event]] = {}
        self.left: list[Seen] = []

    async def do(self, action: str) -> None:
        await getattr(self, action.partition(":")[0])(*action.split(":")[1:])

    async def begin(self) -> None:
        log = self.store.create(SESSION)
        opening = ev.SessionCreated(session=SESSION, workspace="/w", agent="a", system="s", tools=())
        await log.append(opening)
        log.close()
        self.count = 1

    def _note(self) -> ev.DurableEvent:
        self.count += 1
        return ev.Notice(level="info", code="n", text=str(self.count))

    async def open(self) -> None:
        if self.here is None:
            self.here = OpenLog(self.store.open(SESSION), self.count)
            self.channel.listen(self.here)  # type: ignore[arg-type]

    async def open_with_news(self) -> None:
        """Something is recorded before anybody can listen, as when a damaged log is opened."""
        if self.here is None:
            self.here = OpenLog(self.store.open(SESSION), self.count)
            await self.here.record(self._note())
            self.channel.listen(self.here)  # type: ignore[arg-type]

    async def release(self) -> None:
        if self.here is not None:
            self.here.close()
            self.here = None
            self.channel.deafen()
            self._follow()

    async def write(self) -> None:
        """Whoever has it open writes; where nobody has, another process does."""
        if self.here is not None:
            await self.here.record(self._note())
        else:
            log = self.store.open(SESSION)
            await log.append(self._note())
            log.close()

    async def say(self) -> None:
        if self.here is not None:
            self.here.emit(ev.TextDelta(text="x"))

    async def reply(self) -> None:
        """The step that was said piece by piece is recorded."""
        if self.here is not None:
            self.count += 1
            await self.here.record(ev.MessageAdded(message=assistant("said"), origin="model"))

    async def join(self, name: str) -> None:
        await self._join(int(name), 0)

    async def rejoin(self, name: str) -> None:
        """Leave, and come back with the last that was seen."""
        if (known := self.watchers.get(int(name))) is not None:
            await self.leave(name)
            await known[2].wait()  # what is on its way to who leaves is seen, or comes again
            await self._join(int(name), known[0].seqs[-1] if known[0].seqs else 0, known[0])

    async def leave(self, name: str) -> None:
        if (known := self.watchers.pop(int(name), None)) is not None:
            known[1].cancel()
            self.left.append(known[0])

    async def pause(self) -> None:
        await anyio.sleep(0.03)

    async def breathe(self) -> None:
        await anyio.lowlevel.checkpoint()

    async def _join(self, name: int, after: int, seen: Seen | None = None) -> None:
        if name in self.watchers:
            return
        seen = seen or Seen()
        scope, ended = anyio.CancelScope(), anyio.Event()
        self.watchers[name] = (seen, scope, ended)
        self.tasks.start_soon(self._watch, seen, scope, ended, after)

    async def _watch(self, seen: Seen, scope: anyio.CancelScope, ended: anyio.Event, after: int) -> None:
        with scope:
            async with self.channel.watch(after) as watching:
                self._follow()
                await seen.take(watching)
        ended.set()

    def _follow(self) -> None:
        if self.channel.watchers and not self.channel.is_heard:
            self.tasks.start_soon(self.channel.follow)


ACTIONS = st.sampled_from(
    ["open", "open_with_news", "release", "write", "write", "say", "say", "reply", "pause", "breathe"]
    + [f"{what}:{who}" for what in ("join", "join", "rejoin", "leave") for who in (1, 2)]
)


@given(st.lists(ACTIONS, max_size=30))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_recorded_event_comes_once_and_in_order_whatever_happens(tmp_path_factory, actions):
    anyio.run(_play, tmp_path_factory.mktemp("channel"), actions)


async def _play(root, actions) -> None:
    async with anyio.create_task_group() as tasks:
        stage = Stage(root, tasks)
        await stage.begin()
        for action in actions:
            await stage.do(action)
        await stage.join("9")
        await stage.write()
        for seen, *_ in stage.watchers.values():
            await seen.until(lambda seen: bool(seen.seqs) and seen.seqs[-1] == stage.count)
        for seen in [*stage.left, *(seen for seen, *_ in stage.watchers.values())]:
            assert seen.seqs == list(range(1, len(seen.seqs) + 1))
        if stage.here is not None:
            stage.here.close()
        tasks.cancel_scope.cancel()


async def _said_to(root, actions, letters: int) -> list[Seen]:
    """All who watched, once they have so many letters of the running step, and what else would come of it."""
    async with anyio.create_task_group() as tasks:
        stage = Stage(root, tasks)
        await stage.begin()
        await stage.open()
        for action in actions:
            await stage.do(action)
        found = [seen for seen, *_ in stage.watchers.values()]
        for one in found:
            await one.until(lambda seen: len(seen.seqs) == stage.count and len(seen.text()) >= letters)
        await anyio.sleep(0.1)
        assert stage.here is not None
        stage.here.close()
        tasks.cancel_scope.cancel()
    return found


@given(st.lists(st.sampled_from(["say", "say", "say", "pause", "breathe", "join:1", "join:2"]), max_size=25))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_all_who_watch_a_running_step_have_the_same_text_whenever_they_came(tmp_path_factory, actions):
    letters = actions.count("say")
    found = anyio.run(_said_to, tmp_path_factory.mktemp("channel"), [*actions, "join:3"], letters)
    assert {seen.text() for seen in found} == {"x" * letters}


@pytest.mark.parametrize("late", [False, True])
def test_pieces_that_arrive_together_are_handed_on_as_one(tmp_path, late):
    actions = [*(["say"] * 50), "join:1"] if late else ["join:1", "pause", *(["say"] * 50)]
    (seen,) = anyio.run(_said_to, tmp_path, actions, 50)
    assert seen.types.count("text.delta") == 1
    assert seen.text() == "x" * 50


def test_a_recorded_reply_takes_the_place_of_what_was_said(tmp_path):
    (seen,) = anyio.run(_said_to, tmp_path, ["say", "reply", "join:1"], 0)
    assert seen.text() == ""
    assert seen.types == ["session.created", "message.added"]


def test_kinds_of_text_are_joined_apart_and_come_in_the_order_of_their_last_piece(tmp_path):
    async def play() -> list[str]:
        pulse = Flusher()
        channel = SessionStream(SESSION, JsonlStore(tmp_path, SystemClock()), pulse)
        async with channel.watch(0) as watching:
            watching._live = True
            for event in (
                ev.ThinkingDelta(text="a"),
                ev.TextDelta(text="b"),
                ev.ThinkingDelta(text="c"),
                ev.SubagentEvent(call_id="1", child="k", event=ev.TextDelta(text="d")),
                ev.SubagentEvent(call_id="1", child="k", event=ev.TextDelta(text="e")),
            ):
                channel.take(event)
            channel.flush()
            return [json.dumps(json.loads(frame.data)) for frame in await watching.take()]

    found = [json.loads(text) for text in anyio.run(play)]
    assert [event["type"] for event in found] == ["text.delta", "thinking.delta", "subagent.event"]
    assert [found[1]["text"], found[2]["event"]["text"]] == ["ac", "de"]


def test_who_joins_late_is_told_what_a_sub_agent_asks_until_it_is_answered(tmp_path):
    async def play() -> list[list[str]]:
        channel = SessionStream(SESSION, JsonlStore(tmp_path, SystemClock()), Flusher())
        asked = ev.ApprovalRequested(id="a1", seq=4, call_id="c", tool="shell", summary="rm")
        channel.take(ev.SubagentEvent(call_id="1", child="k", event=asked))
        async with channel.watch(0) as watching:
            first = [json.loads(frame.data)["event"]["id"] for frame in await watching.take()]
        answered = ev.ApprovalResolved(seq=5, approval="a1", call_id="c", approved=True)
        channel.take(ev.SubagentEvent(call_id="1", child="k", event=answered))
        return [first, [json.loads(frame.data)["type"] for frame in channel.joined()]]

    assert anyio.run(play) == [["a1"], []]


def test_what_a_sub_agent_asks_elsewhere_is_shown_though_a_later_event_was_read_before_it(tmp_path):
    async def play() -> list[list[str]]:
        channel = SessionStream(SESSION, JsonlStore(tmp_path, SystemClock()), Flusher(), last=5)
        asked = ev.ApprovalRequested(id="a1", seq=4, call_id="c", tool="shell", summary="rm")
        channel.take_live(4, ev.TextDelta(text="old"))
        channel.take_live(4, ev.SubagentEvent(call_id="1", child="k", event=asked))
        shown = [json.loads(frame.data)["event"]["id"] for frame in channel.joined()]
        answered = ev.ApprovalResolved(seq=5, approval="a1", call_id="c", approved=True)
        channel.take_live(4, ev.SubagentEvent(call_id="1", child="k", event=answered))
        return [shown, [json.loads(frame.data)["type"] for frame in channel.joined()]]

    assert anyio.run(play) == [["a1"], []]


def test_a_watcher_that_does_not_read_is_cut_off_and_the_others_are_not(tmp_path):
    async def play() -> tuple[bool, int]:
        class Fan(Stream):
            def reader(self, after: int) -> Reader:
                async def nothing() -> list[Frame]:
                    return []

                return nothing

        fan = Fan()
        async with fan.watch(0) as slow, fan.watch(0) as quick:
            for watching in (slow, quick):
                watching._live = True
            given = 0
            for seq in range(1, MOST_FRAMES + 10):
                fan.push(Frame(seq, b"{}"))
                given += len(await quick.take())
            assert await slow.take() == []
            return slow.lagged, given

    assert anyio.run(play) == (True, MOST_FRAMES + 9)


def test_half_a_character_of_a_model_is_sent_as_a_question_mark(tmp_path):
    assert json.loads(framed(ev.TextDelta(text="a\ud800b"), SESSION).data)["text"] == "a?b"


def test_a_copy_says_the_session_that_is_watched(tmp_path):
    event = ev.SessionCreated(seq=1, session="original", workspace="/w", agent="a", system="s", tools=())
    data = framed(event, SESSION).data
    assert json.loads(data)["session"] == SESSION
    assert data.count(b'"session"') == 1
    assert json.loads(framed(ev.MessageAdded(seq=2, message=user("x"), origin="input"), SESSION).data)["session"]
