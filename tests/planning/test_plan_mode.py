"""Plan mode: it only reads, ends in a proposal, and what is decided about that is carried out once."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import anyio
import pytest
from planned import done, plan, running, use

from lmagent.core import events as ev
from lmagent.core.commands import ChangeTasks, Continue, DecidePlan, SetWork
from lmagent.core.errors import ConfigError
from lmagent.core.work import Budget, Plan, PlanStep, Task
from lmagent.planning.plans import Unusable, plan_json, read_plan
from lmagent.testing.script import call, say


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "notes.txt").write_text("a note\n")
    return workspace


TWO = plan(("a", ()), ("b", ("a",)))


async def proposed(run, task: str = "tidy up") -> ev.TurnFinished:
    await run.session.send(SetWork(mode="plan", by="test"))
    return await run.submit(task)


@pytest.mark.parametrize("answer", [TWO, f"Here:\n```json\n{TWO}\n```\nPLAN_APPROVED", f"{TWO}\n\nPLAN_APPROVED"])
def test_a_plan_is_proposed_approved_and_carried_out(folder, answer):
    async def go() -> None:
        script = [call("read", path="notes.txt"), say(answer), done("a"), done("b"), say("All done.")]
        async with running(folder, *script) as run:
            first = await proposed(run)
            assert (first.outcome, first.cause) == ("question", "plan")
            assert first.fix == ""
            assert "lmagent plan" in first.terminal
            await run.session.send(DecidePlan(decision="approved", by="test"))
            last = await run.go()
            assert last.outcome == "done"
            assert [task.status for task in run.work.tasks.values()] == ["completed", "completed"]
            assert run.work.tasks["a"].result == "saw a"
            kinds = [type(event).__name__ for event in run.of(ev.PlanDecided | ev.TasksChanged | ev.WorkChanged)]
            assert kinds[:4] == ["WorkChanged", "PlanDecided", "TasksChanged", "WorkChanged"]
            assert run.sent.count("<tasks>") == 1, "told once of the steps, and not of its own changes"
            assert run.sent.count("Plan mode: change nothing") == 1
            assert "Ordinary work again" in run.sent

    anyio.run(go)


def test_what_would_change_anything_is_denied_while_planning(folder):
    async def go() -> None:
        script = [call("write", path="x.txt", content="x"), call("shell", command="touch y"), say(TWO)]
        async with running(folder, *script) as run:
            await proposed(run)
            assert all("plan mode" in result for result in run.results)
            assert sorted(path.name for path in folder.iterdir() if path.name[0] != ".") == ["notes.txt"]

    anyio.run(go)


def test_a_model_looks_around_for_ten_rounds_and_not_for_ever(folder):
    async def go() -> None:
        looks = [call("grep", pattern=f"word {number}") for number in range(13)]
        async with running(folder, *looks) as run:
            finished = await proposed(run)
            assert (finished.outcome, finished.cause, finished.steps) == ("error", "plan", 13)
            assert [("answer with the plan" in result) for result in run.results] == [False] * 10 + [True] * 3

    anyio.run(go)


CIRCLE = plan(("a", ("b",)), ("b", ("a",)))
LONG = plan(*((f"s{number}", ()) for number in range(31)))


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("I would read the notes and then write.", "no JSON object"),
        ('{"title": "x", "goal": "y", "steps": [', "not valid JSON"),
        (plan(), "it has no steps"),
        ('{"title": "x"}', "has no steps"),
        (CIRCLE, "circle: a → b → a"),
        (plan(("a", ("z",))), "depends on z, which does not exist"),
        (plan(("a", ()), ("a", ())), "two steps have the id a"),
        (plan(("a b", ())), "blank"),
        (LONG, "31 steps, at most 30"),
        (plan(("a", ()), goal="", title=""), "no goal"),
        ('{"steps": ["read"], "goal": "x"}', "step 1 is no object"),
    ],
)
def test_what_cannot_be_followed_is_told_twice_and_then_is_an_error(folder, answer, why):
    async def go() -> None:
        async with running(folder, say(answer), say(answer), say(answer)) as run:
            finished = await proposed(run)
            assert (finished.outcome, finished.cause) == ("error", "plan")
            assert why in finished.reason
            assert run.sent.count("That is no plan that can be followed") == 2
            assert run.of(ev.PlanProposed) == []
            assert run.work.tasks == {}

    anyio.run(go)


def test_the_second_try_is_held_to_the_schema_and_what_follows_is_not(folder):
    async def go() -> None:
        async with running(folder, say("First this, then that."), say(TWO), done("a"), done("b"), say("Done.")) as run:
            await proposed(run)
            await run.session.send(DecidePlan(decision="approved"))
            await run.go()
            formats = ["response_format" in request.body for request in run.server.chats]
            assert formats == [False, True, False, False, False]
            schema = run.server.chats[1].body["response_format"]["json_schema"]["schema"]
            assert set(schema["required"]) == {"title", "goal", "risk_areas", "steps"}

    anyio.run(go)


def test_a_question_in_plan_mode_is_put_and_the_plan_comes_after_the_answer(folder):
    async def go() -> None:
        async with running(folder, say("Which folder do you mean?"), say(TWO)) as run:
            first = await proposed(run)
            assert (first.outcome, first.cause) == ("question", "question")
            assert (await run.submit("this one")).cause == "plan"

    anyio.run(go)


def test_feedback_makes_a_new_plan_and_a_rejection_ends_plan_mode(folder):
    async def go() -> None:
        async with running(folder, say(TWO), say(plan(("c", ()))), say("Hello.")) as run:
            await proposed(run)
            await run.session.send(DecidePlan(decision="revise", feedback="only one step", by="test"))
            await run.go()
            assert "only one step" in run.sent
            assert [step.id for step in run.work.proposal.plan.steps] == ["c"]
            await run.session.send(DecidePlan(decision="rejected", by="test"))
            assert (run.work.mode, run.work.proposal, run.work.tasks) == ("normal", None, {})
            assert (await run.submit("hello")).outcome == "done"

    anyio.run(go)


def test_a_person_s_plan_is_taken_and_held_to_the_same_rules(folder):
    async def go() -> None:
        async with running(folder, say(TWO), done("x"), say("Done.")) as run:
            await proposed(run)
            bad = Plan("t", "g", (PlanStep("x", "do x", dependencies=("y",)),))
            with pytest.raises(ConfigError, match="does not exist"):
                await run.session.send(DecidePlan(decision="approved", plan=bad))
            assert run.work.proposal is not None
            await run.session.send(DecidePlan(decision="approved", plan=Plan("t", "g", (PlanStep("x", "do x"),))))
            assert (await run.go()).outcome == "done"
            assert list(run.work.tasks) == ["x"]
            with pytest.raises(ConfigError, match="no plan to decide on"):
                await run.session.send(DecidePlan(decision="approved"))

    anyio.run(go)


def test_steps_come_in_their_order_and_need_to_be_verified(folder):
    async def go() -> None:
        early = use("plan_complete_step", step_id="b", verification_notes="seen")
        bare = use("plan_complete_step", step_id="a", verification_notes=" ")
        async with running(folder, say(TWO), early, bare, done("a"), done("a"), done("b"), say("Done.")) as run:
            await proposed(run)
            await run.session.send(DecidePlan(decision="approved"))
            await run.go()
            assert "b comes after a, not done yet" in run.results[0]
            assert "verification_notes is empty" in run.results[1]
            assert "next: b" in run.results[2]
            assert "so already" in run.results[3]
            assert "All are done" in run.results[4]

    anyio.run(go)


def test_a_plan_waits_across_a_restart_and_the_work_begins_in_the_next_process(folder):
    async def go() -> None:
        async with running(folder, say(TWO)) as run:
            await proposed(run)
            name = run.session.state.session
        async with running(folder, done("a"), done("b"), say("Done."), name=name) as run:
            assert run.work.proposal is not None
            await run.session.send(DecidePlan(decision="approved", by="test"))
            assert (await run.go()).outcome == "done"

    anyio.run(go)


def test_a_plan_is_approved_unread_where_a_person_has_set_that(folder):
    async def go() -> None:
        script = [say(TWO), done("a"), done("b"), say("Done.")]
        async with running(folder, *script, approve_plans=True) as run:
            assert (await proposed(run)).answer == "Done."
            first, last = run.of(ev.TurnFinished)
            assert (first.outcome, first.cause) == ("done", "plan")
            assert last.outcome == "done"

    anyio.run(go)


def test_a_kill_behind_an_approval_that_nobody_was_asked_for_loses_nothing(folder):
    async def go() -> None:
        async with running(folder, say(TWO), done("a"), done("b"), say("Done."), approve_plans=True) as run:
            await proposed(run)
            log = folder / ".lmagent" / "sessions" / run.session.state.session / "events.jsonl"
            kept = log.read_text().splitlines(keepends=True)
            name = run.session.state.session
        end = next(at for at, line in enumerate(kept) if '"type":"turn.finished"' in line)
        begun = next(at for at, line in enumerate(kept) if '"type":"plan.proposed"' in line)
        for cut in range(begun, end + 1):
            log.write_text("".join(kept[:cut]))
            async with running(folder, done("a"), done("b"), say("Done."), name=name, approve_plans=True) as run:
                await run.session.send(Continue())
                assert (await run.go()).answer == "Done.", cut
                assert [len(run.of(kind)) for kind in (ev.PlanProposed, ev.PlanDecided)] == [1, 1]
                assert run.sent.count("The plan is approved") == 1
                assert run.sent.count("You are not done") == 0

    anyio.run(go)


def test_a_plan_that_waits_is_approved_when_its_session_is_opened_with_that_set(folder):
    async def go() -> None:
        async with running(folder, say(TWO)) as run:
            await proposed(run)
            name = run.session.state.session
        async with running(folder, done("a"), done("b"), say("Done."), name=name, approve_plans=True) as run:
            assert (await run.go()).outcome == "done"

    anyio.run(go)


def test_many_long_steps_are_told_shorter_and_a_plan_that_is_a_book_is_refused(folder):
    steps = json.loads(plan(*((f"s{number}", ()) for number in range(30))))
    long = {**steps, "steps": [{**step, "description": "word " * 100} for step in steps["steps"]]}
    book = {**steps, "steps": [{**step, "description": "word " * 380} for step in steps["steps"]]}
    assert "at most 24,000" in read_plan(json.dumps(book)).words

    async def go() -> None:
        async with running(folder, say(json.dumps(long)), say("BLOCKED: too much")) as run:
            await proposed(run)
            await run.session.send(DecidePlan(decision="approved"))
            await run.go()
            note = run.session.state.notes["tasks"]
            assert len(note) < 8000
            assert all(f"- s{number} [" in note for number in range(30))

    anyio.run(go)


def test_a_plan_that_the_window_cannot_always_hold_is_refused_from_the_model_and_from_a_person(folder):
    wordy = plan(*((f"s{number}", ()) for number in range(30)), goal="goal " * 390, risk_areas=["risk " * 390] * 4)
    assert "at most 24,000" in read_plan(plan(("a", ()), risk_areas=["risk " * 1000] * 20)).words

    async def go() -> None:
        async with running(folder, say(wordy), say(TWO), context_window=8192) as run:
            await proposed(run)
            assert "in fewer words" in run.sent
            assert [step.id for step in run.work.proposal.plan.steps] == ["a", "b"]
            with pytest.raises(ConfigError, match="of a window that has room"):
                await run.session.send(DecidePlan(decision="approved", plan=read_plan(wordy)))
            assert run.work.proposal is not None

    anyio.run(go)


def test_a_decision_that_a_crash_cut_short_is_brought_to_its_end_once(folder):
    async def go() -> None:
        async with running(folder, say(TWO)) as run:
            await proposed(run)
            name = run.session.state.session
            proposal = run.work.proposal
            await run.session.record(ev.PlanDecided(proposal=proposal.id, decision="approved", plan=proposal.plan))
        for _ in range(2):
            async with running(folder, name=name) as run:
                assert list(run.work.tasks) == ["a", "b"]
                assert run.work.mode == "normal"
                assert len(run.session.state.inputs) == 1
        async with running(folder, done("a"), done("b"), say("Done."), name=name) as run:
            assert (await run.go()).outcome == "done"
            assert len(run.of(ev.TasksChanged)) == 3

    anyio.run(go)


def test_deep_planning_counts_for_the_budget_of_what_is_planned(folder):
    async def go() -> None:
        async with running(folder, say(TWO), done("a"), done("b"), say("Done.")) as run:
            await run.session.send(SetWork(mode="plan", then="deep", budget=Budget(2)))
            finished = await run.submit("tidy up")
            assert (finished.outcome, finished.cause) == ("limit", "iterations")
            assert run.work.steps_before == 0

    anyio.run(go)


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (SetWork(mode="plan", then="plan"), "followed by planning"),
        (SetWork(mode="deep", budget=Budget(0)), "more than 0"),
        (ChangeTasks(), "no task"),
        (ChangeTasks(removed=("x",)), "no task x"),
        (ChangeTasks(items=(Task("a", "todo", "a", depends_on=("b",)),)), "does not exist"),
        (ChangeTasks(items=(Task("a", "todo", " "),)), "needs an id and a title"),
        (DecidePlan(decision="approved"), "no plan"),
    ],
)
def test_an_order_that_makes_no_sense_is_refused_and_nothing_is_recorded(folder, command, why):
    async def go() -> None:
        async with running(folder, say("Hello.")) as run:
            with pytest.raises(ConfigError, match=why):
                await run.session.send(command)
            assert len(run.of(ev.DurableEvent)) == 1

    anyio.run(go)


def test_a_plan_is_the_same_after_it_was_written_out_for_a_person():
    read = partial(read_plan, taken=())
    first = read(TWO)
    assert isinstance(first, Plan)
    assert read(plan_json(first)) == first
    assert read(json.dumps({"plan": json.loads(TWO)})) == first
    assert isinstance(read(TWO.replace('"a"', '"todo1"')), Plan)
    assert isinstance(read_plan(TWO, taken={"a"}), Unusable)


def test_a_question_is_answered_while_the_plan_waits(folder):
    script = [
        say(TWO),
        call("read", path="notes.txt"),
        call("write", path="x.txt", content="x"),
        say("There is a note."),
        say("Yes: b after a."),
        done("a"),
        done("b"),
        say("All done."),
    ]

    async def go() -> None:
        async with running(folder, *script) as run:
            await proposed(run)
            waiting = run.work.proposal
            for question, answer in (("what is in it?", "There is a note."), ("in that order?", "Yes: b after a.")):
                finished = await run.submit(question)
                assert (finished.outcome, finished.cause, finished.answer) == ("done", "", answer)
                assert run.work.proposal == waiting
            assert not (folder / "x.txt").exists(), "it still only reads"
            assert run.sent.count("Your plan waits for the user's decision") == 1
            await run.session.send(DecidePlan(decision="approved", by="test"))
            assert (await run.go()).outcome == "done"

    anyio.run(go)


def test_another_plan_in_an_answer_takes_the_place_of_the_one_that_waits(folder):
    other = plan(("c", ()))
    damaged = other.replace('"description"', '"what"')

    async def go() -> None:
        async with running(
            folder, say(TWO), say(damaged), say(other), say('{"note": 1} is what I would write.')
        ) as run:
            await proposed(run)
            finished = await run.submit("make it one step")
            assert (finished.outcome, finished.cause) == ("question", "plan")
            assert [step.id for step in run.work.proposal.plan.steps] == ["c"]
            finished = await run.submit("how does JSON look?")
            assert (finished.outcome, run.work.proposal.plan.steps[0].id) == ("done", "c")

    anyio.run(go)
