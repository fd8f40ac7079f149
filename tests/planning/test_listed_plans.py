"""A numbered list is a plan: what small models write where JSON was asked for."""

from __future__ import annotations

import anyio
import pytest
from planned import running

from lmagent.core import events as ev
from lmagent.core.commands import SetWork
from lmagent.testing.script import say


async def proposed(run, task: str = "tidy up") -> ev.TurnFinished:
    await run.session.send(SetWork(mode="plan", by="test"))
    return await run.submit(task)


LIST = "I looked around. My plan:\n\n1. **Make it** with\n   the notes\n2) Say so\n10. Look at it again\n\nAll right?"


def test_a_numbered_list_is_a_plan_for_what_was_asked(folder):
    async def go() -> None:
        async with running(folder, say(LIST)) as run:
            finished = await proposed(run, "write the letter")
            assert (finished.outcome, finished.cause) == ("question", "plan")
            (found,) = (event.plan for event in run.of(ev.PlanProposed))
            assert found.goal == "write the letter"
            steps = [(step.id, step.description) for step in found.steps]
            assert steps == [("1", "Make it with the notes"), ("2", "Say so"), ("3", "Look at it again")]

    anyio.run(go)


@pytest.mark.parametrize(
    "answer", ["1. Do it all.", "First tell me:\n1. Which file?\n2. Which name?", "- do a\n- do b"]
)
def test_one_item_questions_and_other_lists_are_no_plan(folder, answer):
    async def go() -> None:
        async with running(folder, say(answer), say(answer), say(answer)) as run:
            await proposed(run)
            assert run.of(ev.PlanProposed) == []

    anyio.run(go)
