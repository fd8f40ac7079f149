"""The loop guard on recorded runs, through the real loop: circles are stopped soon, work never."""

from __future__ import annotations

import hashlib
import json
import string
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit import bench, call, say
from testkit.amount import examples

from lmagent.core import events as ev
from lmagent.core.agent import TurnLimits
from lmagent.core.errors import ToolError
from lmagent.core.messages import ToolCall
from lmagent.core.tool import Tool, ToolOutput
from lmagent.engine.loopguard import LoopGuard
from lmagent.engine.toolbox import Toolbox

RECORDED: dict[str, Any] = json.loads((Path(__file__).parent / "loops.json").read_text(encoding="utf-8"))
TOOLS = ("read", "shell", "grep", "ls", "edit", "write", "python", "jobs", "git_commit")


def filled(value: Any, n: int) -> Any:
    """A recorded value in its n-th round."""
    if isinstance(value, dict):
        return {key: filled(inner, n) for key, inner in value.items()}
    if isinstance(value, list):
        return [filled(inner, n) for inner in value]
    if not isinstance(value, str):
        return value
    if value == "{int}":
        return 100 + n
    word = "".join(string.ascii_lowercase[int(digit)] for digit in f"{n:03d}")
    noise = {"{nn}": f"{n % 60:02d}", "{pid}": str(4000 + 7 * n), "{id}": hashlib.md5(word.encode()).hexdigest()[:16]}
    for name, text in {"{n}": str(n), "{word}": word, "{blanks}": " " * n, "{n0}": ".", **noise}.items():
        value = value.replace(name, text)
    return value


class Recorded:
    """Tools that give the recorded results, in order."""

    def __init__(self) -> None:
        self.results: dict[str, dict[str, Any]] = {}

    def reply(self, step: Any, n: int):
        step = filled(step, n)
        if isinstance(step, dict) and "say" in step:
            return say(step["say"])
        calls = step if isinstance(step, list) else [step]
        made = call(*[(one["tool"], json.dumps(one["args"])) for one in calls])
        for one, asked in zip(calls, made.message.tool_calls, strict=True):
            self.results[asked.id] = one
        return made

    def toolbox(self) -> Toolbox:
        async def run(_arguments: Any, context: Any) -> ToolOutput:
            one = self.results[context.call]
            if "error" in one:
                raise ToolError(one["error"])
            data: dict[str, Any] = {"exit_code": one.get("exit", 0)}
            if "sha" in one:
                data |= {"path": one["path"], "sha256": one["sha"], "changed": True}
            return ToolOutput(one["content"], data)

        return Toolbox(Tool(name, name, {"type": "object"}, "read", run) for name in TOOLS)


async def played(pattern: list[Any], rounds: int, *, by_step: bool = False) -> tuple[ev.TurnFinished, list[str]]:
    """How a run of that many rounds ends, and what the model was told by the guard.

    Args:
        pattern: the replies of a round.
        rounds: how many.
        by_step: each reply counts as a round of its own.
    """
    recorded = Recorded()
    numbers = [(step, n) for n in range(1, rounds + 1) for step in pattern]
    made = await bench(
        *[recorded.reply(step, at if by_step else n) for at, (step, n) in enumerate(numbers, 1)],
        say("It is all done."),
    )
    made.wiring.toolbox = recorded.toolbox()
    finished = await made.submit()
    told = [event.message.text for event in made.of(ev.MessageAdded) if event.origin == "nudge"]
    return finished, told + [
        event.content for event in made.of(ev.ToolFinished) if event.content.startswith("Withheld")
    ]


@pytest.mark.parametrize("loop", RECORDED["loops"], ids=lambda loop: loop["name"])
def test_a_circle_is_stopped_within_six_steps_of_its_third_repetition(loop):
    finished, _ = anyio.run(lambda: played(loop["pattern"], 60, by_step=loop["period"] == 1))
    assert finished.cause in ("loop", "errors", "empty", "no_progress", "narration"), finished
    assert finished.steps <= loop.get("steps", 4 * loop["period"] + 6), finished


@pytest.mark.parametrize("work", RECORDED["work"], ids=lambda work: work["name"])
def test_work_is_never_stopped(work):
    finished, told = anyio.run(lambda: played(work["pattern"], work["rounds"]))
    assert (finished.outcome, finished.answer) == ("done", "It is all done."), finished
    assert [text for text in told if text.startswith("Withheld")] == []


def test_there_are_at_least_twenty_of_each():
    assert len(RECORDED["loops"]) >= 20
    assert len(RECORDED["work"]) >= 20


def test_a_circle_is_hinted_and_withheld_before_it_is_stopped():
    loop = next(loop for loop in RECORDED["loops"] if loop["period"] == 3)
    _, told = anyio.run(lambda: played(loop["pattern"], 60))
    assert any("round in a circle" in text and not text.startswith("Withheld") for text in told)
    assert any(text.startswith("Withheld: you go round in a circle") for text in told)


words = st.text(string.ascii_letters, min_size=1, max_size=6)
runs = st.lists(st.lists(st.tuples(words, words), min_size=1, max_size=3), min_size=1, max_size=60)


@settings(max_examples=examples(200), deadline=None)
@given(runs)
def test_a_run_in_which_every_result_is_new_is_never_stopped(run):
    guard = LoopGuard(TurnLimits())
    number = 0
    for step in run:
        for tool, argument in step:
            number += 1
            made = ToolCall(f"c{number}", tool, json.dumps({"path": argument}))
            assert guard.before(made) is None
            alarm = guard.after(made, "ok", f"result {number}")
            assert alarm is None or alarm.action == "hint"
        assert guard.step_done() is None


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(words, min_size=1, max_size=6, unique=True), st.integers(1, 3))
def test_any_circle_of_calls_that_bring_nothing_new_comes_to_an_end(names, width):
    guard = LoopGuard(TurnLimits())
    size = -(-len(names) // width)
    for step in range(1, 200):
        at = (step - 1) % size * width
        for name in names[at : at + width]:
            made = ToolCall(f"c{step}{name}", "read", json.dumps({"path": name}))
            alarm = guard.before(made) or guard.after(made, "ok", f"content of {name}")
            if alarm is not None and alarm.action == "stop":
                assert step <= 4 * size + 6
                return
        if guard.step_done() is not None:
            assert step <= 4 * size + 6
            return
    raise AssertionError("it went on for 200 steps")


@pytest.mark.parametrize("text", ["a" * 300_000, "1" * 300_000, "../" * 100_000, "a/" * 100_000, "./a " * 70_000])
def test_the_longest_arguments_and_results_cost_little(text):
    guard = LoopGuard(TurnLimits())
    made = ToolCall("c", "write", json.dumps({"path": text, "content": text}))
    for _ in range(3):
        assert guard.before(made) is None
        guard.after(made, "error", text)


def test_many_failed_calls_of_one_reply_end_no_run():
    async def check():
        guesses = [("read", json.dumps({"path": "missing", "size": n})) for n in range(12)]
        made = await bench(call(*guesses), call(("read", '{"path": "a"}')), say("It is read."))
        finished = await made.submit()
        assert (finished.outcome, finished.answer) == ("done", "It is read.")

    anyio.run(check)


def test_replies_in_which_every_call_failed_end_the_run():
    async def check():
        def failing(n: int):
            return call(*[("read", json.dumps({"path": "missing" if one else "bug", "size": n})) for one in range(2)])

        made = await bench(*[failing(n) for n in range(10)])
        finished = await made.submit()
        assert (finished.outcome, finished.steps) == ("error", 5)

    anyio.run(check)


def test_one_call_that_works_makes_up_for_the_failures_beside_it():
    async def check():
        replies = [call(("read", '{"path": "bug"}'), ("read", json.dumps({"path": f"file {n} a"}))) for n in range(8)]
        made = await bench(*replies, say("All are read."))
        assert (await made.submit()).outcome != "error"

    anyio.run(check)


def _read_again(guard: LoopGuard, names: str, number: int, held: set[str]) -> list[str]:
    """Read files that were read before, one a step; what the guard stops the turn for."""
    guard.cut(held)
    stops: list[str] = []
    for name in names:
        made = ToolCall(f"c{number}{name}", "read", json.dumps({"path": f"{name}.txt"}))
        alarms = [guard.after(made, "ok", f"the content of the file {name}, which is long enough"), guard.step_done()]
        stops += [alarm.cause for alarm in alarms if alarm is not None and alarm.action == "stop"]
    return stops


def test_reading_again_what_a_cut_took_from_the_prompt_is_not_standing_still():
    guard = LoopGuard(TurnLimits())
    for number in range(3):
        assert _read_again(guard, string.ascii_letters[:20], number, set()) == []


def test_reading_again_what_the_prompt_still_holds_is_standing_still():
    guard, names = LoopGuard(TurnLimits()), string.ascii_letters[:20]
    assert _read_again(guard, names, 0, set()) == []
    assert "no_progress" in _read_again(guard, names, 1, {f"c0{name}" for name in names})


def test_a_circle_of_readings_and_cuts_comes_to_an_end():
    guard = LoopGuard(TurnLimits())
    stops = [stop for number in range(10) for stop in _read_again(guard, "abcdef", number, set())]
    assert stops
