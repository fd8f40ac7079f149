"""A turn is not done while what was set as a condition is open; what is only a list is asked about once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planned import plan, running, use

from lmagent.core import events as ev
from lmagent.core.commands import ChangeTasks, DecidePlan, SetWork
from lmagent.core.work import Task, TaskState
from lmagent.planning import batch as gate
from lmagent.planning.tree import cycle, faults, ordered
from lmagent.testing.script import say


def state(text: str, total: int | None = 3, processed: int = 1, queue: tuple[str, ...] = ("b", "c")) -> TaskState:
    return TaskState("", text, total, processed, queue)


@pytest.mark.parametrize("text", ["processed == total", "remaining_queue is empty", "all files look nice"])
def test_a_gate_is_met_when_the_queue_is_empty_and_all_is_processed(text):
    assert gate.unmet(state(text)).startswith("2 left in the queue: b, c")
    assert gate.unmet(state(text, queue=())) == "1 of 3 are processed"
    assert gate.unmet(state(text, processed=3, queue=())) == ""
    assert gate.standing(state(text)).endswith("The gate is not met.")


def test_without_a_total_the_queue_alone_decides():
    assert gate.unmet(state("processed == total", total=None))
    assert gate.unmet(state("processed == total", total=None, queue=())) == ""


def test_without_a_gate_nothing_holds_up_the_end():
    assert gate.unmet(state("")) == ""


def begin(**more):
    return use("task_state_update", completion_gate="processed == total", total_count=2, **more)


def test_an_unmet_gate_sends_the_model_on_twice_and_then_the_turn_is_incomplete(folder):
    async def go() -> None:
        async with running(folder, begin(), say("Done."), say("All done."), say("Really done.")) as run:
            finished = await run.submit()
            assert (finished.outcome, finished.cause) == ("error", "incomplete")
            assert "0 of 2 are processed" in finished.reason
            assert run.sent.count("You are not done") == 2

    anyio.run(go)


def test_a_gate_that_is_met_after_the_reminder_ends_the_turn_as_done(folder):
    async def go() -> None:
        script = [begin(), say("Done."), use("task_state_update", processed_count=2), say("Now it is done.")]
        async with running(folder, *script) as run:
            assert (await run.submit()).outcome == "done"

    anyio.run(go)


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        ("BLOCKED: the disk is full", "blocked"),
        ("Which of the two do you want?", "question"),
        (f"WAIT: {datetime.now(UTC) + timedelta(hours=3):%Y-%m-%dT%H:%M:%SZ}: the build", "waiting"),
    ],
    ids=["blocked", "question", "waiting"],
)
def test_who_is_blocked_asks_or_waits_may_end_with_the_gate_unmet(folder, answer, outcome):
    async def go() -> None:
        async with running(folder, begin(), say(answer)) as run:
            assert (await run.submit()).outcome == outcome

    anyio.run(go)


async def approved(run) -> ev.TurnFinished:
    await run.session.send(SetWork(mode="plan"))
    await run.submit()
    await run.session.send(DecidePlan(decision="approved"))
    return await run.go()


def test_open_steps_of_an_approved_plan_hold_up_the_end(folder):
    async def go() -> None:
        script = [say(plan(("a", ()), ("b", ()))), say("Done."), say("Done."), say("Done.")]
        async with running(folder, *script) as run:
            finished = await approved(run)
            assert (finished.outcome, finished.cause) == ("error", "incomplete")
            assert finished.reason.endswith("2 tasks are open: a, b")
            assert "- b [pending] do b" in run.sent

    anyio.run(go)


def test_who_gets_on_between_two_reminders_is_reminded_again(folder):
    async def go() -> None:
        def done(id):
            return use("plan_complete_step", step_id=id, verification_notes="seen")

        script = [
            say(plan(("a", ()), ("b", ()))),
            say("Done."),
            say("Done."),
            done("a"),
            say("Done."),
            done("b"),
            say("Done."),
        ]
        async with running(folder, *script) as run:
            assert (await approved(run)).outcome == "done"

    anyio.run(go)


def test_without_enforcement_open_steps_hold_up_nothing(folder):
    async def go() -> None:
        async with running(folder, say(plan(("a", ()))), say("Done."), enable_plan_enforcement=False) as run:
            assert (await approved(run)).outcome == "done"

    anyio.run(go)


def test_open_todos_are_asked_about_once_and_do_not_hold_up_the_end(folder):
    async def go() -> None:
        async with running(folder, use("todo_add", description="later"), say("Done."), say("Done."), say("Hi.")) as run:
            assert (await run.submit()).outcome == "done"
            assert run.sent.count("todos are still open") == 1

    anyio.run(go)


def test_what_a_person_changes_is_told_once_and_a_model_s_own_changes_never(folder):
    async def go() -> None:
        script = [use("todo_add", description="mine"), say("Done."), *[say("Ok.")] * 6]
        async with running(folder, *script) as run:
            await run.submit()
            await run.slash("/todo add yours")
            await run.slash("/todo done todo1")
            await run.submit("go on")
            await run.submit("and on")
            assert run.sent.count("<tasks>") == 1
            assert "- todo1 [completed] mine" in run.sent
            await run.slash("/todo drop todo2")
            await run.submit("and on")
            assert run.sent.count("<tasks>") == 2
            assert "Gone: todo2" in run.sent

    anyio.run(go)


def test_a_person_takes_back_a_gate_that_does_not_matter_any_more(folder):
    async def go() -> None:
        async with running(folder, begin(), say("BLOCKED: no files"), say("It is noon.")) as run:
            await run.submit()
            assert "processed: 0 of 2" in (await run.slash("/todo")).text
            await run.slash("/todo drop state")
            assert (await run.submit("what time is it?")).outcome == "done"
            assert "Task state:\ncleared" in run.sent

    anyio.run(go)


def test_a_sub_agent_that_inherits_its_parent_s_notes_is_told_of_changes_to_its_own_tasks(folder):
    async def go() -> None:
        async with running(folder, say("Ok.")) as run:
            inherited = {"tasks": "<tasks>\nChanged by others (slash; event 900):\n- x [pending] x\n</tasks>"}
            await run.session.record(ev.ContextInherited(messages=(), notes=inherited))
            await run.session.send(ChangeTasks(items=(Task("t1", "task", "mine", "completed"),), by="slash"))
            await run.submit()
            assert "- t1 [completed] mine" in run.sent

    anyio.run(go)


def test_a_change_by_another_part_of_the_program_is_told_too(folder):
    async def go() -> None:
        async with running(folder, say("Ok.")) as run:
            await run.session.send(ChangeTasks(items=(Task("t1", "task", "found out", "completed"),), by="subagent"))
            await run.submit()
            assert "Changed by others (subagent" in run.sent

    anyio.run(go)


graphs = st.dictionaries(st.sampled_from("abcdefgh"), st.lists(st.sampled_from("abcdefgh"), max_size=4).map(tuple))


@settings(deadline=None)
@given(graphs)
def test_what_is_ordered_stands_behind_what_it_needs_and_what_is_not_stands_in_a_circle(needs):
    known = {id: tuple(need for need in wants if need in needs) for id, wants in needs.items()}
    order = ordered(known)
    for position, id in enumerate(order):
        assert set(known[id]) <= set(order[:position])
    circle = cycle(known)
    assert bool(circle) == (len(order) < len(known))
    assert all(second in known[first] for first, second in pairwise(circle))
    assert bool(faults(known)) == bool(circle)
