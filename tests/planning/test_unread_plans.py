"""Plans that nobody has to decide about: deep work in permission mode auto."""

from __future__ import annotations

import anyio
from planned import done, plan, running

from lmagent.core import events as ev
from lmagent.core.commands import SetWork
from lmagent.testing.script import say

TWO = plan(("a", ()), ("b", ("a",)))


def test_deep_work_in_permission_mode_auto_begins_unread_and_a_plan_that_was_asked_for_waits(folder):
    async def go() -> None:
        script = [say(TWO), done("a"), done("b"), say("Done.")]
        async with running(folder, *script) as run:
            await run.session.send(SetWork(mode="plan", then="deep"))
            assert (await run.submit("tidy up")).answer == "Done."
            (decided,) = run.of(ev.PlanDecided)
            assert (decided.decision, decided.by) == ("approved", "settings")
        async with running(folder, say(TWO)) as run:
            await run.session.send(SetWork(mode="plan"))
            assert (await run.submit("tidy up")).outcome == "question"
            assert run.work.proposal is not None

    anyio.run(go)


def test_a_plan_that_waits_still_waits_after_the_mode_became_auto(folder):
    async def go() -> None:
        async with running(folder, say(TWO), permission_mode="normal") as run:
            await run.session.send(SetWork(mode="plan", then="deep"))
            assert (await run.submit("tidy up")).outcome == "question"
            name = run.session.state.session
        async with running(folder, say("Because."), name=name) as run:
            await run.submit("why?")
            assert run.work.proposal is not None
            assert run.of(ev.PlanDecided) == []

    anyio.run(go)
