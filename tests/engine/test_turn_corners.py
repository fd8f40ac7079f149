"""A turn under what models, people and small windows do to it."""

import anyio
import anyio.lowlevel
import msgspec
from kit import bench, call, say

from lmagent.core import events as ev
from lmagent.core.agent import Window
from lmagent.core.commands import Approve, Compact, Steer, Submit
from lmagent.core.errors import AuthError
from lmagent.core.messages import Image, Message, Text, user
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
async def test_nested_or_nul_arguments_go_back_to_the_model_and_the_turn_goes_on():
    deep = '{"path": ' + "[" * 5000 + "]" * 5000 + "}"
    made = await bench(
        call(("read", deep)), call(("write", '{"path": "a\\u0000b"}')), call(("write", '{"path": "a"}')), say("Done.")
    )
    finished = await made.submit()
    assert finished.outcome == "done"
    assert [event.status for event in made.of(ev.ToolFinished)] == ["error", "error", "ok"]
    assert "NUL" in made.of(ev.ToolFinished)[1].content
    assert made.world.ran == ["write a"]


@run
async def test_results_of_one_reply_share_the_room_that_a_small_window_has():
    reads = call(*(("read", f'{{"path": "f{n}", "size": 2000}}') for n in range(4)))
    made = await bench(reads, say("Read."), window=Window(tokens=8192))
    finished = await made.submit()
    assert finished.outcome == "done"
    sizes = [len(event.content) for event in made.of(ev.ToolFinished)]
    assert sum(sizes) < 8192 * 4 * 0.4
    assert all("read_artifact(id=" in event.content for event in made.of(ev.ToolFinished))


@run
async def test_a_secret_is_masked_in_artifacts_and_in_live_text_however_it_is_cut():
    secret = "sk-0123456789abcdef"
    made = await bench(call(("read", f'{{"path": "{secret}", "size": 3000}}')), secrets=(secret,))
    await made.submit()
    assert all(secret.encode() not in blob for blob in made.log.blobs.values())
    assert made.log.blobs
    for piece in ("the key is sk-0123", "456789ab", "cdef, and sk-0 is none"):
        made.session.emit_live(ev.TextDelta(text=piece))
    await made.session.record(ev.MessageAdded(message=user("x"), origin="note"))
    shown = "".join(event.text for event in made.seen if isinstance(event, ev.TextDelta))
    assert shown.endswith("the key is [redacted], and sk-0 is none")


@run
async def test_a_word_that_stands_for_any_key_masks_nothing():
    made = await bench(say("The assistant says hello."), secrets=("assistant",))
    finished = await made.submit("hello assistant")
    assert finished.answer == "The assistant says hello."


@run
async def test_what_a_failed_reply_had_said_is_not_taken_for_a_later_one():
    made = await bench(AuthError("no"), say("ok"))
    made.session.partial = ["stale words"]
    await made.submit("first")
    assert made.session.partial == []


@run
async def test_announcing_again_after_real_work_is_not_counted_with_the_earlier_announcements():
    made = await bench(
        *(answer for n in range(4) for answer in (say("I'll read the file."), call(("read", f'{{"path": "{n}"}}')))),
        say("All four are read."),
    )
    finished = await made.submit()
    assert finished.outcome == "done"


@run
async def test_an_image_that_steers_reaches_the_model():
    picture = Message("user", (Text("like this"), Image("image/png", "iVBORw0KGgo=")))
    made = await bench(call(("read", '{"path": "a"}')), say("Seen."))

    async def steer():
        await made.session.send(Steer(message=picture))

    made.world.on_run = lambda *_: steer()
    await made.submit()
    parts = [part for message in made.model.requests[1].messages for part in message.parts]
    assert any(isinstance(part, Image) for part in parts)


@run
async def test_input_that_arrives_while_an_idle_session_is_compacted_is_done_too():
    made = await bench(say("x" * 8000), say("And this."))
    await made.submit("y" * 8000)
    original = made.model.stream

    async def stream(request):
        if request.tool_choice == "none":
            await made.session.send(Submit(message=user("one more")))
        async for event in original(request):
            yield event

    made.model.stream = stream
    await made.session.send(Compact())
    finished = await run_until_idle(made.session)
    assert finished is not None
    assert finished.answer == "And this."
    assert made.session.state.inputs == {}


@run
async def test_a_denied_write_is_not_forgiven_by_another_one():
    made = await bench(
        call(("write", '{"path": "a"}')),
        call(("write", '{"path": "out/b"}')),
        say("Done."),
        mode="normal",
        rules=Rules(allow=("write(out/**)",)),
    )
    finished = await made.submit()
    assert (finished.outcome, finished.cause) == ("done", "permission")


@run
async def test_always_settles_the_same_question_of_the_calls_beside_it():
    made = await bench(
        call(("read", '{"path": "a"}'), ("read", '{"path": "b"}'), ("read", '{"path": "c"}')),
        mode="manual",
        attended=True,
    )
    asked = []

    async def answer():
        while len(made.session.state.approvals) < 3:
            await anyio.lowlevel.checkpoint()
        asked.extend(made.session.state.approvals.values())
        await made.session.send(Approve(approval=asked[0].id, approved=True, scope="session"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(answer)
        with anyio.fail_after(5):
            await made.submit()
    same = [item for item in asked if item.grant == asked[0].grant]
    assert len(made.world.ran) == len(same) == 3


@run
async def test_a_message_that_would_fill_the_window_is_capped_and_kept_whole_and_both_are_told():
    made = await bench(say("Many."), window=Window(tokens=4096))
    whole = "\n".join(f"line {number} of a log" for number in range(6000))
    await made.session.send(Submit(message=user(whole)))
    await run_until_idle(made.session)
    sent = made.model.requests[0].messages[0].text
    assert len(sent) < 4096 * 4 / 2
    assert sent.startswith("line 0 of a log\n")
    assert sent.endswith("line 5999 of a log")
    [notice] = [event for event in made.of(ev.Notice) if event.code == "input_capped"]
    handle = notice.text.partition("artifact:")[2].rstrip(")")
    assert f'read_artifact(id="{handle}"' in sent
    assert made.log.get_blob(handle).decode() == whole
    assert not made.of(ev.CompactionDone)


@run
async def test_that_another_model_answers_is_told_once():
    for asked, answered, told in (
        ("big-a", "tiny-1b", 1),
        ("llama3", "llama3:latest", 0),
        ("gpt-4o", "openai/gpt-4o-2024-08-06", 0),
        ("qwen3-8b", "/models/Qwen3-8B.gguf", 0),
        ("", "tiny-1b", 0),
        ("big-a", "", 0),
    ):
        replies = [
            msgspec.structs.replace(reply, model=answered) for reply in (call(("read", '{"path": "a"}')), say("."))
        ]
        made = await bench(*replies)
        made.session.agent = msgspec.structs.replace(made.session.agent, model=asked)
        await made.submit()
        assert sum(event.code == "other_model" for event in made.of(ev.Notice)) == told, (asked, answered)
