"""A crash at every event: nothing that was recorded is lost, nothing with an effect runs twice, the prompt goes on."""

import anyio
import anyio.lowlevel
from kit import bench, call, extends, faults, say

from lmagent.core import events as ev
from lmagent.core.commands import Continue, Submit
from lmagent.core.errors import Unreachable
from lmagent.core.messages import user
from lmagent.engine.lane import run_until_idle
from lmagent.engine.recovery import NOT_BEGUN, OUTCOME_UNKNOWN


async def _whole_run():
    made = await bench(
        call(("read", '{"path": "a"}'), ("write", '{"path": "b"}')),
        call(("write", '{"path": "c"}'), ("write", '{"path": "d"}')),
        say("The answer."),
    )
    await made.submit()
    return made


def test_a_crash_at_every_event_is_gone_on_from():
    async def check():
        whole = await _whole_run()
        for kept in range(1, len(whole.log.lines) + 1):
            made = await _whole_run()
            made.world.ran.clear()
            started = {event.call_id for event in made.log.events()[:kept] if isinstance(event, ev.ToolStarted)}
            again = await made.reopen(kept)
            sent_before = [r for r in made.model.requests if r.messages]
            steps = sum(isinstance(event, ev.StepStarted) for event in again.log.events())
            del again.model.requests[steps:]
            again.model.answers[:] = [say("The answer.")]
            if not again.session.state.turn_open:
                continue
            await again.session.send(Continue())
            finished = await run_until_idle(again.session)
            assert finished is not None, kept
            assert finished.outcome == "done", (kept, finished)
            _nothing_twice(again, started, kept)
            for request in again.model.requests:
                assert faults(request) == [], kept
            if steps and len(again.model.requests) > steps:
                assert extends(sent_before[steps - 1], again.model.requests[steps]), kept

    anyio.run(check)


def _nothing_twice(again, started, kept) -> None:
    results = [event for event in again.log.events() if isinstance(event, ev.ToolFinished)]
    assert len({event.call_id for event in results}) == len(results), kept
    writes = [name for name in again.world.ran if name.startswith("write")]
    assert len(writes) == len(set(writes)), kept
    for event in again.log.events():
        if isinstance(event, ev.ToolStarted) and event.effect == "write":
            times = sum(
                isinstance(other, ev.ToolStarted) and other.call_id == event.call_id for other in again.log.events()
            )
            assert times == 1, kept
    unfinished = [event for event in results if event.status == "interrupted"]
    assert all(event.content == (OUTCOME_UNKNOWN if event.call_id in started else NOT_BEGUN) for event in unfinished), (
        kept
    )


def test_after_a_crash_inside_a_call_the_rest_of_its_reply_is_left_to_the_model():
    async def check():
        made = await bench(call(("write", '{"path": "build"}'), ("write", '{"path": "deploy"}')), say("Done."))
        await made.submit()
        kept = next(n for n, event in enumerate(made.log.events(), 1) if isinstance(event, ev.ToolStarted))
        again = await made.reopen(kept)
        made.world.ran.clear()
        again.model.answers[:] = [call(("write", '{"path": "build"}')), say("Built again.")]
        await again.session.send(Continue())
        finished = await run_until_idle(again.session)
        assert finished is not None
        assert finished.outcome == "done"
        assert again.world.ran == ["write build"]
        told = [event.content for event in again.of(ev.ToolFinished)[:2]]
        assert told == [OUTCOME_UNKNOWN, NOT_BEGUN]

    anyio.run(check)


def test_new_input_after_a_crash_closes_the_broken_turn_first():
    async def check():
        made = await _whole_run()
        for kept in range(2, len(made.log.lines)):
            again = await made.reopen(kept)
            again.model.requests.clear()
            again.model.answers[:] = [say("fine")]
            await again.session.send(Submit(message=user("something else")))
            finished = await run_until_idle(again.session)
            assert finished is not None, kept
            assert finished.outcome == "done", kept
            for request in again.model.requests:
                assert faults(request) == [], (kept, faults(request))

    anyio.run(check)


def test_an_input_that_was_accepted_and_not_begun_is_carried_out_after_a_crash():
    async def check():
        made = await bench()
        await made.session.send(Submit(message=user("do not lose me")))
        again = await made.reopen()
        finished = await run_until_idle(again.session)
        assert finished is not None
        assert "do not lose me" in str(again.model.requests[0].messages)

    anyio.run(check)


def test_an_input_that_was_accepted_is_read_before_the_model_is_asked_to_go_on():
    async def check():
        made = await bench(Unreachable("nobody is there"))
        await made.submit()
        assert made.session.state.owes_reply
        await made.session.send(Submit(message=user("do not pass me over")))
        again = await made.reopen()
        again.model.requests.clear()
        again.model.answers[:] = [say("fine")]
        await again.session.send(Continue())
        await run_until_idle(again.session)
        assert "do not pass me over" in str(again.model.requests[0].messages)

    anyio.run(check)


def test_an_approval_that_was_waiting_is_asked_again_and_not_taken_as_given():
    async def check():
        made = await bench(call(("write", '{"path": "a"}')), mode="normal", attended=True)
        async with anyio.create_task_group() as tasks:
            await made.session.send(Submit(message=user("go")))
            tasks.start_soon(run_until_idle, made.session)
            while not made.session.state.approvals:
                await anyio.lowlevel.checkpoint()
            lines = len(made.log.lines)
            tasks.cancel_scope.cancel()
        again = await made.reopen(lines)
        assert len(again.session.state.approvals) == 1
        again.wiring.attended = False
        await again.session.send(Continue())
        await run_until_idle(again.session)
        assert made.world.ran == []
        assert len([e for e in again.log.events() if isinstance(e, ev.ApprovalRequested)]) == 1

    anyio.run(check)


def test_the_state_after_reopening_is_the_state_before():
    async def check():
        made = await _whole_run()
        again = await made.reopen()
        for name in (
            "messages",
            "files",
            "mode",
            "turn",
            "usage",
            "title",
            "user_texts",
            "sealed",
            "conversation_bytes",
        ):
            assert getattr(again.session.state, name) == getattr(made.session.state, name), name

    anyio.run(check)
