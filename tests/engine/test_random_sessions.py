"""Thousands of random sessions: whatever happens, the prompt only grows, and no call is left without its result."""

from __future__ import annotations

import os
from dataclasses import dataclass

import anyio
import anyio.lowlevel
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kit import Bench, bench, call, extends, faults, say

from lmagent.core import events as ev
from lmagent.core.agent import TurnLimits, Window
from lmagent.core.commands import Compact, Continue, Interrupt, SetMode, SetModel, Steer, Submit
from lmagent.core.errors import ServerFailure, Unreachable
from lmagent.core.messages import user
from lmagent.engine.lane import run_until_idle

pytestmark = pytest.mark.long

EXAMPLES = int(os.environ.get("LMAGENT_RANDOM_SESSIONS", "3000" if "LMAGENT_ALL" in os.environ else "200"))

PATHS = st.sampled_from(["a", "b", "src/c", "missing", "bug"])
SIZES = st.sampled_from([1, 30, 900])
GOOD_CALL = st.builds(
    lambda name, path, size: (name, f'{{"path": "{path}", "size": {size}}}'),
    st.sampled_from(["read", "read_file", "write", "read"]),
    PATHS,
    SIZES,
)
BAD_CALL = st.sampled_from(
    [
        ("read", '{"path": '),
        ("nothing", "{}"),
        ("read", "[1]"),
        ("use_tool", '{"name": "late", "arguments": {"path": "a"}}'),
    ]
)
CALLS = st.lists(st.one_of(GOOD_CALL, GOOD_CALL, BAD_CALL), min_size=1, max_size=3)
REPLIES = st.one_of(
    st.builds(lambda calls, cut: call(*calls, cut=cut), CALLS, st.sampled_from([False, False, False, True])),
    st.builds(lambda calls, cut: call(*calls, cut=cut), CALLS, st.just(False)),
    st.builds(
        lambda text, thought: say(text, thought=thought),
        st.sampled_from(["All done.", "ok"]),
        st.sampled_from(["", "hm"]),
    ),
    st.sampled_from(
        [say("I will now read the file."), say(""), say("", thought="only thought"), say("cut of", finish="length")]
    ),
    st.sampled_from([ServerFailure("broke", retryable=True, partial=True), Unreachable("away")]),
)


@dataclass
class Wish:
    """Something a person does, `at` the n-th request of the model."""

    kind: str
    at: int


WISHES = st.lists(
    st.builds(Wish, st.sampled_from(["steer", "queue", "mode", "model", "interrupt", "compact"]), st.integers(1, 8)),
    max_size=3,
)
TURNS = st.lists(
    st.tuples(st.lists(REPLIES, max_size=6), WISHES, st.sampled_from(["", "", "reopen", "crash", "continue"])),
    min_size=1,
    max_size=4,
)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    turns=TURNS,
    window=st.sampled_from([4000, 9000, 32768]),
    notes=st.booleans(),
    keep_thinking=st.booleans(),
    data=st.data(),
)
def test_the_prompt_only_grows_and_every_call_has_its_result(turns, window, notes, keep_thinking, data):
    anyio.run(_play, turns, window, notes, keep_thinking, data)


async def _play(turns, window, notes, keep_thinking, data) -> None:
    dates = iter(f"<date>{number // 2}</date>" for number in range(10**6))
    made = await bench(
        limits=TurnLimits(steps=12),
        window=Window(tokens=window, keep_recent=2000, keep_user=1000),
        notes=(lambda: next(dates),) if notes else (),
        keep_thinking=keep_thinking,
    )
    for number, (replies, wishes, after) in enumerate(turns):
        made.model.answers[:] = replies
        _schedule(made, wishes, len(made.model.requests))
        await made.session.send(Submit(message=user(f"task {number}")))
        await run_until_idle(made.session)
        made.model.before = None
        made.model.answers.clear()
        made = await _afterwards(made, after, data)
    await made.submit("the last task")
    check(made)


def _schedule(made: Bench, wishes: list[Wish], already: int) -> None:
    async def act(number: int) -> None:
        for wish in wishes:
            if wish.at == number - already:
                await _do(made, wish.kind)

    made.model.before = act


async def _do(made: Bench, kind: str) -> None:
    commands = {
        "steer": Steer(message=user("please hurry")),
        "queue": Submit(message=user("and then this")),
        "mode": SetMode(mode="manual"),
        "model": SetModel(model="another"),
        "interrupt": Interrupt(),
        "compact": Compact(),
    }
    await made.session.send(commands[kind])
    if kind == "interrupt":
        await anyio.lowlevel.checkpoint()


async def _afterwards(made: Bench, after: str, data) -> Bench:
    if not after:
        return made
    lines = len(made.log.lines)
    if after != "reopen":
        lines = data.draw(st.integers(1, lines), label="lines kept")
    again = await made.reopen(lines)
    # What the lost lines asked for was never asked for, as far as this log knows.
    known = sum(isinstance(event, ev.StepStarted) for event in again.log.events())
    del again.model.requests[known:]
    if after == "continue":
        await again.session.send(Continue())
        await run_until_idle(again.session)
    return again


def check(made: Bench) -> None:
    requests = made.model.requests
    for position, request in enumerate(requests):
        assert faults(request) == [], (position, faults(request))
    steps = [event for event in made.log.events() if isinstance(event, (ev.StepStarted, ev.CompactionDone))]
    assert sum(isinstance(event, ev.StepStarted) for event in steps) == len(requests)
    number = 0
    cut = True
    for event in steps:
        if isinstance(event, ev.CompactionDone):
            cut = True
            continue
        if not cut:
            assert extends(requests[number - 1], requests[number]), f"request {number} does not extend the one before"
        number, cut = number + 1, False
    calls = [part for event in made.of(ev.MessageAdded) for part in event.message.tool_calls]
    finished = [event.call_id for event in made.of(ev.ToolFinished)]
    assert sorted(finished) == sorted(item.id for item in calls), "a call without exactly one result"
