"""Deep work: a hard total, reminders, a report; and what a compaction keeps of all work."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from planned import done, plan, running, use

from lmagent.core import events as ev
from lmagent.core.commands import DecidePlan, SetWork
from lmagent.core.errors import ConfigError
from lmagent.core.work import Budget
from lmagent.engine.budget import tokens_spent
from lmagent.testing.script import call, say

ASKS = {"permission_mode": "normal", "permission_allow": ("write",)}
"""Plans wait for a decision, calls that write do not."""


def look(number: int):
    return call("grep", pattern=f"word {number}")


def report(folder: Path) -> str:
    (path,) = folder.glob(".lmagent/reports/*.md")
    return path.read_text()


async def deep(run, steps: int | None = None, tokens: int | None = None) -> None:
    await run.session.send(SetWork(mode="deep", budget=Budget(steps, tokens), by="test"))


def test_deep_work_by_a_plan_ends_with_a_report_of_what_was_done(folder):
    async def go() -> None:
        script = [
            say(plan(("a", ()), ("b", ("a",)))),
            call("write", path="out.txt", content="x\n"),
            done("a"),
            done("b"),
        ]
        async with running(folder, *script, say("It is tidy."), **ASKS) as run:
            told = []
            await run.slash("/deep tidy up")
            run.session.listen(told.append)
            await run.submit("tidy up")
            assert not list(folder.glob(".lmagent/reports/*")), "nothing was done yet"
            await run.session.send(DecidePlan(decision="approved"))
            finished = await run.go()
            assert finished.outcome == "done"
            text = report(folder)
            assert "**done**" in text
            assert "It is tidy." in text
            assert "- [x] b [completed] do b" in text
            assert "result: saw b" in text
            assert "`out.txt`" in text
            assert "of 200, sub-agents included" in text
            assert "events.jsonl" in text
            notices = [event.text for event in told if isinstance(event, ev.Notice)]
            assert notices == [f"a report of this work: .lmagent/reports/{run.session.state.session}.md"]

    anyio.run(go)


def test_the_budget_is_a_total_over_turns_and_restarts_and_the_end_is_reported(folder):
    async def go() -> None:
        async with running(folder, look(1), look(2), say("Found.")) as run:
            await deep(run, 5)
            assert (await run.submit()).outcome == "done"
            name = run.session.state.session
        async with running(folder, look(3), look(4), look(5), name=name) as run:
            finished = await run.submit()
            assert (finished.outcome, finished.cause) == ("limit", "iterations")
            assert finished.steps == 2
            assert "/deep more" in finished.fix
            assert (await run.submit()).steps == 0
            assert "5 of 5" in report(folder)
            await run.slash("/deep more 1")
            assert (await run.submit()).steps == 1

    anyio.run(go)


def test_more_while_a_plan_is_made_is_for_the_planning_and_never_takes_the_place_of_a_decision(folder):
    async def go() -> None:
        async with running(folder, say("Which folder?"), say(plan(("a", ()))), **ASKS) as run:
            await run.session.send(SetWork(mode="plan", then="deep", budget=Budget(1)))
            await run.submit()
            await run.slash("/deep more 9")
            assert (run.work.mode, run.work.then, run.work.budget.steps) == ("plan", "deep", 9)
            assert (await run.submit("this one")).cause == "plan"
            with pytest.raises(ConfigError, match="waits for your decision"):
                await run.slash("/deep more 9")
            assert run.work.proposal is not None

    anyio.run(go)


@pytest.mark.parametrize("steps", ["0", "²", "9" * 5000])
def test_a_budget_that_is_no_number_is_refused(folder, steps):
    async def go() -> None:
        async with running(folder, say("Hello.")) as run:
            await run.submit("hello")
            with pytest.raises(ConfigError):
                await run.slash(f"/deep more {steps}")
            assert run.work.mode == "normal"

    anyio.run(go)


def test_the_model_is_told_once_when_most_of_the_budget_is_used(folder):
    async def go() -> None:
        async with running(folder, *map(look, range(9)), say("Found.")) as run:
            await deep(run, 10)
            await run.submit()
            told = ["80% of the budget" in str(request.body["messages"]) for request in run.server.chats]
            assert told == [False] * 8 + [True] * 2
            assert run.sent.count("80% of the budget") == 1

    anyio.run(go)


def test_a_new_budget_is_told_and_warned_of_anew_and_its_end_is_told_too(folder):
    async def go() -> None:
        async with running(folder, *map(look, range(10)), say("Hello.")) as run:
            for _ in range(2):
                await deep(run, 5)
                await run.submit()
            assert run.sent.count("80% of the budget") == 2
            assert run.sent.count("<budget>\nBudget: 5 model calls") == 1
            await run.slash("/work normal")
            await run.submit("hello")
            assert "There is no budget any more." in run.session.state.notes["budget"]

    anyio.run(go)


def test_a_session_that_was_closed_and_opened_again_in_one_program_is_reported_on(folder):
    async def go() -> None:
        async with running(folder, say("First."), say("Second.")) as run:
            await deep(run)
            await run.submit()
            name = run.session.state.session
            await run.host.release(name)
            run.session = await run.host.open_session(name)
            await run.submit()
            assert "Second." in report(folder)

    anyio.run(go)


def test_a_report_that_a_crash_left_behind_is_brought_up_to_date(folder):
    async def go() -> None:
        async with running(folder, say("First."), say("Second.")) as run:
            await deep(run)
            await run.submit()
            (path,) = folder.glob(".lmagent/reports/*.md")
            first = path.read_text()
            await run.submit()
            name = run.session.state.session
        path.write_text(first)
        async with running(folder, name=name):
            assert "Second." in report(folder)

    anyio.run(go)


def test_a_report_that_cannot_be_written_leaves_nothing_behind_and_is_said(folder):
    async def go() -> None:
        async with running(folder, say("Done.")) as run:
            await deep(run)
            (folder / ".lmagent" / "reports" / f"{run.session.state.session}.md" / "x").mkdir(parents=True)
            told = []
            run.session.listen(told.append)
            assert (await run.submit()).outcome == "done"
            assert any("could not be written" in event.text for event in told if isinstance(event, ev.Notice))
            assert len(list((folder / ".lmagent" / "reports").iterdir())) == 1

    anyio.run(go)


def test_tokens_are_a_total_too(folder):
    async def go() -> None:
        async with running(folder, *map(look, range(9)), say("Found.")) as run:
            await deep(run, None, 3000)
            finished = await run.submit()
            assert (finished.outcome, finished.cause) == ("limit", "tokens")
            assert "the next call takes" in finished.reason
            assert 0 < tokens_spent(run.session.state) <= 3000

    anyio.run(go)


def test_in_deep_work_open_todos_hold_up_the_end(folder):
    async def go() -> None:
        script = [use("todo_add", description="first"), say("Done."), use("todo_complete", todo_id=1), say("Done.")]
        async with running(folder, *script) as run:
            await deep(run)
            assert (await run.submit()).outcome == "done"
            assert "You are not done" in run.sent

    anyio.run(go)


def test_a_summary_that_a_cut_asks_for_counts_and_may_use_the_last_of_the_budget(folder):
    async def go() -> None:
        filler = "\n".join(f"This is line {n} of a long text, of no importance." for n in range(60))
        script = [*[say("Read.")] * 6, say("a summary")]
        async with running(folder, *script, context_window=16384) as run:
            await deep(run, 7)
            for number in range(6):
                await run.submit(f"{number}\n{filler}")
            before = run.session.state.usage.prompt_tokens
            await run.slash("/compact")
            finished = await run.submit("go on")
            assert (finished.outcome, finished.cause, finished.steps) == ("limit", "iterations", 0)
            (cut,) = run.of(ev.CompactionDone)
            assert cut.summary == "a summary"
            assert run.session.state.usage.prompt_tokens - before == cut.usage.prompt_tokens > 0
            assert "7 of 7, sub-agents included" in report(folder)

    anyio.run(go)


def test_a_report_is_never_written_through_a_link(folder, tmp_path):
    async def go() -> None:
        async with running(folder, say("Done."), name="") as run:
            (folder / ".lmagent" / "reports").symlink_to(tmp_path)
            await deep(run)
            told = []
            run.session.listen(told.append)
            await run.submit()
            assert not list(tmp_path.glob("*.md"))
            assert any("is a link" in event.text for event in told if isinstance(event, ev.Notice))

    anyio.run(go)


def test_short_work_has_fifteen_steps(folder):
    async def go() -> None:
        async with running(folder, *map(look, range(20))) as run:
            await run.slash("/work bounded")
            assert (await run.submit()).steps == 15

    anyio.run(go)


def test_a_cut_keeps_everything_that_is_open_and_what_the_user_demanded(folder):
    async def go() -> None:
        many = [{"task_id": f"n{n}", "title": f"look at number {n}", "depends_on": []} for n in range(60)]
        script = [
            say(plan(("a", ()), ("b", ("a",)))),
            done("a"),
            use("todo_add", description="remember the milk"),
            use("manage_tasks", action="create", tasks=many),
            use("task_state_update", objective="count all", total_count=7, remaining_queue=["p.txt", "q.txt"]),
            *[say("BLOCKED: nothing to do")] * 6,
            say("a summary"),
        ]
        async with running(folder, *script, context_window=16384) as run:
            filler = "\n".join(f"This is line {n} of a long text, of no importance." for n in range(60))
            demand = "You must never touch the file golden.bin."
            await run.session.send(SetWork(mode="plan"))
            await run.submit("tidy up")
            await run.session.send(DecidePlan(decision="approved"))
            await run.go()
            for number in range(5):
                await run.submit(f"{number}\n{filler}\n{demand if number == 1 else ''}\n{filler}")
            await run.slash("/compact")
            await run.go_on()
            text = run.session.state.messages[0].text
            for words in ("b [pending] do b", "todo1 [pending] remember the milk", "p.txt, q.txt", "count all", demand):
                assert words in text, words
            assert all(f"- n{n} [pending]" in text for n in range(60))
            assert "Approved plan: Tidy up" in text
            assert "a [completed]" not in text

    anyio.run(go)
