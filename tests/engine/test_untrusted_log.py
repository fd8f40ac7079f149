"""A log is data: it can be damaged, come with a checkout, or be moved. It never widens what a session may do."""

import anyio
import anyio.lowlevel
import msgspec
import pytest
from kit import bench, call, faults, say

from lmagent.core import events as ev
from lmagent.core.commands import Approve, Compact, Continue, Submit
from lmagent.core.messages import user
from lmagent.engine.lane import run_until_idle


async def _forged(made, **changes):
    """The same log, with another first event."""
    first = msgspec.structs.replace(made.log.events()[0], **changes)
    made.log.lines[0] = ev.encode(first)
    return await made.reopen()


def test_tools_work_in_the_workspace_that_was_opened_whatever_the_log_says():
    async def check():
        made = await bench(say("hello"))
        await made.submit()
        again = await _forged(made, workspace="/somewhere/else")
        contexts = []
        again.world.on_run = lambda name, arguments: contexts.append(again.wiring.workspace)
        again.model.answers[:] = [call(("read", '{"path": "a"}')), say("done")]
        await again.submit()
        assert [str(path) for path in contexts] == ["/workspace"]

    anyio.run(check)


@pytest.mark.parametrize(("logged", "own", "then"), [("auto", "manual", "manual"), ("manual", "auto", "manual")])
def test_a_resumed_session_asks_as_often_as_the_stricter_of_log_and_settings(logged, own, then):
    async def check():
        made = await bench(say("hello"), mode=own)
        await made.submit()
        again = await _forged(made, mode=logged)
        assert again.session.state.mode == then

    anyio.run(check)


def test_grants_and_answers_in_a_log_do_not_let_a_call_run():
    async def check():
        made = await bench(call(("write", '{"path": "a"}')), mode="normal", attended=True)
        async with anyio.create_task_group() as tasks:

            async def answer():
                while not made.session.state.approvals:
                    await anyio.lowlevel.checkpoint()
                (request,) = made.session.state.approvals.values()
                await made.session.send(Approve(approval=request.id, approved=True, scope="session"))

            tasks.start_soon(answer)
            await made.submit()
        assert made.world.ran == ["write a"]
        kept = next(n for n, event in enumerate(made.log.events(), 1) if isinstance(event, ev.ApprovalResolved))
        made.world.ran.clear()
        made.wiring.attended = False
        again = await made.reopen(kept)
        await again.session.send(Continue())
        await run_until_idle(again.session)
        assert again.world.ran == []

    anyio.run(check)


async def _until_asked(made) -> None:
    """Let it work until it waits for an approval, when the program ends."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made.submit)
        while not made.session.state.approvals:
            await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()


def test_an_approval_that_waited_through_a_crash_is_shown_again_and_can_be_answered():
    async def check():
        made = await bench(call(("write", '{"path": "a"}')), mode="normal", attended=True)
        await _until_asked(made)
        kept = next(n for n, event in enumerate(made.log.events(), 1) if isinstance(event, ev.ApprovalRequested))
        again = await made.reopen(kept)
        async with anyio.create_task_group() as tasks:

            async def answer():
                while not any(isinstance(event, ev.ApprovalRequested) for event in again.seen):
                    await anyio.lowlevel.checkpoint()
                (request,) = [event for event in again.seen if isinstance(event, ev.ApprovalRequested)]
                await again.session.send(Approve(approval=request.id, approved=True))

            tasks.start_soon(answer)
            await again.session.send(Continue())
            await run_until_idle(again.session)
        assert again.world.ran == ["write a"]
        assert len(again.of(ev.ApprovalRequested)) == 1

    anyio.run(check)


def test_an_answer_given_before_going_on_counts():
    async def check():
        made = await bench(call(("write", '{"path": "a"}')), mode="normal", attended=True)
        await _until_asked(made)
        kept = next(n for n, event in enumerate(made.log.events(), 1) if isinstance(event, ev.ApprovalRequested))
        again = await made.reopen(kept)
        (request,) = again.session.state.approvals.values()
        await again.session.send(Approve(approval=request.id, approved=True))
        await again.session.send(Continue())
        with anyio.fail_after(5):
            await run_until_idle(again.session)
        assert again.world.ran == ["write a"]

    anyio.run(check)


def test_a_call_that_the_token_limit_cut_off_is_not_run_after_a_crash_either():
    async def check():
        made = await bench(call(("write", '{"path": "a"}'), cut=True))
        await made.submit()
        for kind in (ev.MessageAdded, ev.StepFinished):
            kept = next(
                n
                for n, event in enumerate(made.log.events(), 1)
                if isinstance(event, kind) and getattr(event, "origin", "model") == "model"
            )
            again = await made.reopen(kept)
            await again.session.send(Continue())
            await run_until_idle(again.session)
            assert again.world.ran == []

    anyio.run(check)


def test_a_log_without_its_beginning_begins_anew_and_keeps_its_conversation():
    async def check():
        made = await bench(say("The answer."), say("More."))
        await made.submit("the question")
        del made.log.lines[0]
        again = await made.reopen()
        await again.submit("go on")
        request = again.model.requests[-1]
        assert request.system == "the system text"
        assert request.tools
        assert [message.text for message in request.messages] == ["the question", "The answer.", "go on"]

    anyio.run(check)


def test_any_one_line_may_be_lost_and_every_request_is_still_valid():
    async def check():
        whole = await bench(
            call(("read", '{"path": "a"}'), ("write", '{"path": "b"}')),
            call(("write", '{"path": "c"}')),
            say("The answer."),
        )
        await whole.submit("first")
        await whole.submit("second")
        for lost in range(1, len(whole.log.lines)):
            made = await bench()
            made.log.lines = [line for number, line in enumerate(whole.log.lines) if number != lost]
            again = await made.reopen()
            await again.session.send(Continue())
            await run_until_idle(again.session)
            await again.submit("third")
            assert [found for request in again.model.requests for found in faults(request)] == [], lost

    anyio.run(check)


def test_compacting_a_session_that_crashed_inside_a_call_leaves_no_call_without_its_result():
    async def check():
        made = await bench(call(("write", '{"path": "a"}'), text="x" * 4000))
        await made.submit("y" * 4000)
        kept = next(n for n, event in enumerate(made.log.events(), 1) if isinstance(event, ev.ToolStarted))
        again = await made.reopen(kept)
        await again.session.send(Compact())
        await run_until_idle(again.session)
        await again.session.send(Submit(message=user("and now?")))
        await run_until_idle(again.session)
        assert [found for request in (*again.model.asides, *again.model.requests) for found in faults(request)] == []
        assert "outcome is unknown" in str(again.of(ev.ToolFinished)[-1].content)

    anyio.run(check)
