"""What a lane leaves behind when it is cut off."""

from __future__ import annotations

import anyio
from kit import bench, call, say

from lmagent.core.commands import Continue, Interrupt, Submit
from lmagent.core.messages import user
from lmagent.engine.lane import run_until_idle


async def _cut_off(made, *, by_command: bool) -> None:
    """Run until the second model call, and cut that off."""
    begun = anyio.Event()

    def before(number: int):
        if number == 2:
            begun.set()
            return anyio.sleep_forever()
        return None

    made.model.before = before
    await made.session.send(Submit(message=user("do it")))
    async with anyio.create_task_group() as tasks:

        async def lane() -> None:
            await run_until_idle(made.session, resumable=True)

        tasks.start_soon(lane)
        await begun.wait()
        if by_command:
            await made.session.send(Interrupt())
        else:
            tasks.cancel_scope.cancel()
    made.model.before = None


def test_a_turn_of_a_program_that_ends_stays_unfinished_and_is_gone_on_with():
    async def check():
        made = await bench(call(("read", '{"path": "a"}')), say("The end."))
        await _cut_off(made, by_command=False)
        assert made.session.state.turn_open
        again = await made.reopen()
        await again.session.send(Continue())
        finished = await run_until_idle(again.session)
        assert finished is not None
        assert (finished.outcome, finished.answer, finished.turn) == ("done", "The end.", 1)
        assert again.world.ran == made.world.ran == ["read a"]

    anyio.run(check)


def test_a_turn_that_somebody_interrupts_is_over_all_the_same():
    async def check():
        made = await bench(call(("read", '{"path": "a"}')), say("The end."))
        await _cut_off(made, by_command=True)
        assert not made.session.state.turn_open
        assert made.session.state.last_outcome == "interrupted"

    anyio.run(check)
