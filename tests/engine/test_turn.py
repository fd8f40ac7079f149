import anyio
import anyio.lowlevel
import pytest
from kit import bench, call, extends, say

from lmagent.core import events as ev
from lmagent.core.agent import TurnLimits, Window
from lmagent.core.commands import Approve, Continue, Interrupt, Steer, Submit, Withdraw
from lmagent.core.errors import AuthError, ContextOverflow, ServerFailure, StoreError
from lmagent.core.messages import user
from lmagent.core.model import Usage
from lmagent.engine.lane import run_until_idle
from lmagent.policy.gate import Rules


def run(function):
    """A test written as a coroutine."""

    def test():
        anyio.run(function)

    test.__name__ = function.__name__
    test.__doc__ = function.__doc__
    return test


@run
async def test_a_task_with_tools_ends_done_with_its_answer():
    made = await bench(call(("read", '{"path": "a"}')), say("It says a."))
    finished = await made.submit()
    assert (finished.outcome, finished.answer, finished.steps) == ("done", "It says a.", 2)


@run
async def test_reads_of_one_reply_run_side_by_side_and_results_keep_the_models_order():
    made = await bench(call(("read", '{"path": "a"}'), ("read", '{"path": "b"}'), ("read", '{"path": "c"}')))
    await made.submit()
    assert made.world.most_running == 3
    results = [message.parts[0].content[0] for message in made.model.requests[1].messages if message.role == "tool"]
    assert results == ["a", "b", "c"]


@run
async def test_writes_run_one_after_the_other_between_the_reads():
    made = await bench(call(("write", '{"path": "a"}'), ("read", '{"path": "a"}'), ("write", '{"path": "b"}')))
    await made.submit()
    assert made.world.most_running == 1
    assert made.world.ran == ["write a", "read a", "write b"]


@run
async def test_a_call_is_on_disk_before_it_acts_and_its_result_before_the_model_sees_it():
    made = await bench(call(("write", '{"path": "a"}')))
    synced = []
    made.world.on_run = lambda *_: synced.append((made.log.synced, len(made.log.lines)))
    await made.submit()
    (at_run,) = synced
    assert at_run[0] == at_run[1]
    finished = next(event for event in made.log.events() if isinstance(event, ev.ToolFinished))
    following = next(event for event in made.log.events() if event.seq == finished.seq + 1)
    assert isinstance(following, ev.StepStarted)


@run
async def test_narration_is_nudged_twice_and_then_ends_as_an_honest_error():
    made = await bench(*[say("I will now read the file.") for _ in range(5)])
    finished = await made.submit()
    assert (finished.outcome, finished.cause, finished.steps) == ("error", "narration", 3)
    assert "incomplete" in finished.reason


@run
async def test_empty_replies_are_nudged_and_end_as_an_error():
    made = await bench(*[say("") for _ in range(9)], limits=TurnLimits(empties=3))
    finished = await made.submit()
    assert (finished.outcome, finished.cause, finished.steps) == ("error", "empty", 3)


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("BLOCKED: no access", "blocked"),
        ("WAIT: +30m: the build", "waiting"),
        ("Which of the two files?", "question"),
        ("TASK_COMPLETE", "done"),
    ],
)
def test_each_way_to_end_is_its_own_outcome(text, outcome):
    async def check():
        made = await bench(say(text))
        assert (await made.submit()).outcome == outcome

    anyio.run(check)


@run
async def test_the_step_limit_ends_the_turn_as_a_limit():
    made = await bench(*[call(("read", f'{{"path": "f{n}"}}')) for n in range(9)], limits=TurnLimits(steps=4))
    finished = await made.submit()
    assert (finished.outcome, finished.cause, finished.steps) == ("limit", "iterations", 4)


@run
async def test_a_token_budget_ends_the_turn_as_a_limit():
    made = await bench(say("I will read it.", usage=Usage(900, 200)), say("done"), limits=TurnLimits(turn_tokens=1000))
    finished = await made.submit()
    assert (finished.outcome, finished.cause) == ("limit", "tokens")


@run
async def test_the_same_call_again_and_again_is_hinted_withheld_and_stopped():
    made = await bench(*[call(("read", '{"path": "a"}')) for _ in range(30)])
    finished = await made.submit()
    contents = [event.content for event in made.of(ev.ToolFinished)]
    assert (finished.outcome, finished.cause) == ("limit", "loop")
    said = [event.message.text for event in made.of(ev.MessageAdded) if event.origin == "nudge"]
    assert "You go round in a circle" in said[0]
    assert len(made.world.ran) == 6
    assert contents[6].startswith("Withheld")
    assert finished.steps == 10


@run
async def test_many_reads_of_different_files_raise_no_alarm():
    made = await bench(*[call(("read", f'{{"path": "f{n}"}}')) for n in range(40)])
    finished = await made.submit()
    assert finished.outcome == "done"
    assert not any("same call" in event.content for event in made.of(ev.ToolFinished))


@run
async def test_five_failed_calls_in_a_row_stop_the_turn():
    made = await bench(*[call(("read", f'{{"path": "missing", "size": {n}}}')) for n in range(9)])
    finished = await made.submit()
    assert (finished.outcome, finished.cause) == ("error", "errors")


@run
async def test_damaged_arguments_go_back_as_they_came_and_nothing_runs():
    made = await bench(call(("write", '{"path": "a')))
    await made.submit()
    (result,) = made.of(ev.ToolFinished)
    assert made.world.ran == []
    assert '{"path": "a' in result.content
    assert "character" in result.content


@run
async def test_a_call_that_the_reply_cut_off_is_not_run_and_the_ones_before_it_are():
    made = await bench(call(("write", '{"path": "a"}'), ("write", '{"path": "b"}'), cut=True))
    await made.submit()
    assert made.world.ran == ["write a"]
    assert "ended inside this call" in made.of(ev.ToolFinished)[1].content


@run
async def test_a_tool_that_does_not_exist_names_the_nearest_one():
    made = await bench(call(("raed", "{}")))
    await made.submit()
    assert "Did you mean read?" in made.of(ev.ToolFinished)[0].content


@run
async def test_a_deferred_tool_is_called_through_use_tool():
    made = await bench(call(("use_tool", '{"name": "late", "arguments": {"path": "a"}}')))
    await made.submit()
    assert made.world.ran == ["late a"]
    assert "late" not in [spec.name for spec in made.session.state.tools]


@run
async def test_a_bug_in_a_tool_is_a_result_and_not_the_end():
    made = await bench(call(("read", '{"path": "bug"}')), say("noted"))
    finished = await made.submit()
    assert finished.outcome == "done"
    assert "ValueError" in made.of(ev.ToolFinished)[0].content


@run
async def test_steering_reaches_the_model_as_a_user_message_after_the_next_tool_result():
    made = await bench(call(("read", '{"path": "a"}')), say("ok"))
    made.world.on_run = lambda *_: made.session.send(Steer(message=user("use tabs")))
    await made.submit()
    assert "use tabs" in made.model.requests[1].messages[-1].text
    assert made.of(ev.TurnFinished)[0].steps == 2


@run
async def test_steering_behind_the_final_answer_goes_on_with_the_turn():
    made = await bench(say("finished early"), say("with tabs now"))

    def steer(number):
        return made.session.send(Steer(message=user("use tabs"))) if number == 1 else None

    made.model.before = steer
    finished = await made.submit()
    assert (finished.answer, len(made.of(ev.TurnFinished))) == ("with tabs now", 1)


@run
async def test_a_second_task_waits_for_the_end_of_the_first_and_can_be_withdrawn():
    made = await bench(call(("read", '{"path": "a"}')), say("first"), say("second"))

    async def queue(*_):
        kept = await made.session.send(Submit(message=user("the second task")))
        dropped = await made.session.send(Submit(message=user("never mind")))
        assert kept is not None
        assert dropped is not None
        await made.session.send(Withdraw(input=dropped.id))

    made.world.on_run = queue
    await made.submit("the first task")
    assert [event.answer for event in made.of(ev.TurnFinished)] == ["first", "second"]
    assert "never mind" not in str(made.model.requests)


@run
async def test_an_interrupt_keeps_what_was_said_and_leaves_a_valid_conversation():
    made = await bench(call(("read", '{"path": "a"}'), text="Looking."), say("never said"))
    made.world.on_run = lambda *_: made.session.send(Interrupt())
    finished = await made.submit()
    assert (finished.outcome, finished.cause) == ("interrupted", "interrupt")
    made.world.on_run = None
    assert (await made.submit("again")).outcome == "done"
    assert extends(made.model.requests[0], made.model.requests[1])


@run
async def test_an_input_is_on_disk_before_anything_is_done_about_it():
    made = await bench()
    event = await made.session.send(Submit(message=user("x")))
    assert event is not None
    assert made.log.synced == event.seq
    assert made.model.requests == []


@run
async def test_without_a_person_asking_means_denying_and_the_turn_says_so():
    made = await bench(call(("write", '{"path": "a"}')), say("could not"), mode="normal")
    finished = await made.submit()
    assert made.world.ran == []
    assert finished.cause == "permission"
    assert made.of(ev.ApprovalResolved)[0].by == "unattended"


@run
async def test_an_interrupt_answers_what_was_asked():
    made = await bench(call(("write", '{"path": "a"}')), mode="normal", attended=True)

    async def interrupt():
        while not made.session.state.approvals:
            await anyio.lowlevel.checkpoint()
        await made.session.send(Interrupt())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(interrupt)
        assert (await made.submit()).outcome == "interrupted"
    (asked,), (answered,) = made.of(ev.ApprovalRequested), made.of(ev.ApprovalResolved)
    assert (answered.approval, answered.approved, answered.by) == (asked.id, False, "interrupt")


@run
async def test_an_approval_is_answered_while_the_run_waits():
    made = await bench(call(("write", '{"path": "a"}')), call(("write", '{"path": "b"}')), mode="normal", attended=True)

    async def answer():
        while not made.session.state.approvals:
            await anyio.lowlevel.checkpoint()
        (request,) = made.session.state.approvals
        await made.session.send(Approve(approval=request, approved=True, scope="session", by="another surface"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(answer)
        await made.submit()
    assert made.world.ran == ["write a", "write b"]
    assert len(made.of(ev.ApprovalRequested)) == 1
    assert made.session.state.grants == ["write"]


@run
async def test_a_denial_with_words_reaches_the_model():
    made = await bench(call(("write", '{"path": "a"}')), mode="normal", attended=True)

    async def answer():
        while not made.session.state.approvals:
            await anyio.lowlevel.checkpoint()
        (request,) = made.session.state.approvals
        await made.session.send(Approve(approval=request, approved=False, feedback="use docs/ instead"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(answer)
        await made.submit()
    assert made.world.ran == []
    assert "use docs/ instead" in made.of(ev.ToolFinished)[0].content


@run
async def test_a_deny_rule_holds_in_every_mode():
    made = await bench(call(("write", '{"path": "src/a"}')), rules=Rules(deny=("write(src/**)",)))
    await made.submit()
    assert made.world.ran == []


@run
async def test_a_broken_stream_is_asked_for_again_and_the_request_is_the_same():
    broken = ServerFailure("cut", retryable=True, partial=True)
    made = await bench(broken, say("whole"))
    finished = await made.submit()
    assert finished.answer == "whole"
    assert made.model.requests[0].messages == made.model.requests[1].messages
    assert any(isinstance(event, ev.RetryScheduled) for event in made.seen)


@run
async def test_a_provider_error_ends_the_turn_with_its_fix():
    made = await bench(AuthError("the key was refused", fix="set LLM_API_KEY"))
    finished = await made.submit()
    assert (finished.outcome, finished.cause, finished.fix) == ("error", "AuthError", "set LLM_API_KEY")


@run
async def test_an_overflow_shortens_the_conversation_and_tries_once_more():
    made = await bench(
        call(("read", '{"path": "a", "size": 900}')),
        call(("read", '{"path": "b", "size": 900}')),
        ContextOverflow("too long", window=6000),
        say("fits now"),
    )
    finished = await made.submit()
    assert finished.answer == "fits now"
    assert made.session.window.tokens == 6000
    assert made.of(ev.CompactionDone)[0].trigger == "overflow"


@run
async def test_a_second_overflow_in_a_row_is_an_error():
    made = await bench(ContextOverflow("too long"), ContextOverflow("still too long"))
    finished = await made.submit()
    assert (finished.outcome, finished.cause) == ("error", "ContextOverflow")


@run
async def test_a_full_disk_stops_before_acting():
    made = await bench(call(("write", '{"path": "a"}')))
    await made.session.send(Submit(message=user("go")))
    made.log.fail_at = len(made.log.lines) + 6
    with pytest.raises(StoreError, match="no space left"):
        await run_until_idle(made.session)
    assert made.world.ran == []


@run
async def test_notes_are_sent_when_they_change_and_only_then():
    texts = iter(["<date>one</date>", "<date>one</date>", "<date>two</date>"])
    made = await bench(call(("read", '{"path": "a"}')), call(("read", '{"path": "b"}')), notes=(lambda: next(texts),))
    await made.submit()
    notes = [event.message.text for event in made.of(ev.MessageAdded) if event.origin == "note"]
    assert notes == ["<date>one</date>", "<date>two</date>"]


@run
async def test_a_secret_never_reaches_the_log_or_the_model():
    secret = 'sk-"s3cr3t/x"-123456'
    made = await bench(call(("read", '{"path": "a"}')), secrets=(secret,))
    await made.submit(f"my key is {secret}")
    assert "s3cr3t" not in b"".join(made.log.lines).decode()
    assert "s3cr3t" not in str(made.model.requests)
    assert "[redacted]" in str(made.model.requests)


@run
async def test_going_on_after_an_interrupt_continues_the_same_turn_of_thought():
    made = await bench(say("half"), say("whole"))
    made.model.before = lambda number: made.session.send(Interrupt()) if number == 1 else None
    assert (await made.submit()).outcome == "interrupted"
    made.model.before = None
    await made.session.send(Continue())
    finished = await run_until_idle(made.session)
    assert finished is not None
    assert finished.outcome == "done"


@run
async def test_a_long_result_is_capped_once_and_kept_whole():
    made = await bench(call(("read", '{"path": "a", "size": 3000}')), window=Window(result_cap=500))
    await made.submit()
    (result,) = made.of(ev.ToolFinished)
    assert len(result.content) < 2400
    assert result.artifact is not None
    assert f'read_artifact(id="{result.artifact[:12]}"' in result.content
    assert made.log.get_blob(result.artifact).decode().count("content of a line") == 3000


@run
async def test_a_full_disk_during_parallel_reads_is_one_error_and_not_a_group():
    made = await bench(call(("read", '{"path": "a"}'), ("read", '{"path": "b"}')))
    await made.session.send(Submit(message=user("go")))
    made.log.fail_at = len(made.log.lines) + 6
    with pytest.raises(StoreError, match="no space left"):
        await run_until_idle(made.session)
