import re

import anyio
import pytest
from kit import bench, call, faults, say

from lmagent.core import events as ev
from lmagent.core.agent import Window
from lmagent.core.commands import Compact
from lmagent.core.errors import ContextOverflow, ServerFailure, Unreachable
from lmagent.engine.budget import tokens_spent
from lmagent.engine.context import compaction
from lmagent.engine.lane import run_until_idle
from lmagent.engine.state import message_bytes

SMALL = Window(tokens=8000, keep_recent=2000, keep_user=500)


def big(number: int, lines: int = 250):
    """A read; with 250 lines, its result is more than one call may bring in a window of 8,000 tokens."""
    return call(("read", f'{{"path": "file{number}", "size": {lines}}}'))


async def _long_run(lines: int = 250, **more):
    made = await bench(*[big(n, lines) for n in range(24)], say("All read."), window=SMALL, **more)
    finished = await made.submit("read every file and REMEMBER THE CODEWORD apricot")
    return made, finished


def test_a_long_task_goes_through_compactions_to_its_end():
    async def check():
        made, finished = await _long_run()
        cuts = made.of(ev.CompactionDone)
        assert finished.outcome == "done"
        assert 1 < len(cuts) < 8
        assert all(event.after_tokens < event.before_tokens for event in cuts)
        assert all(faults(request) == [] for request in made.model.requests)

    anyio.run(check)


def test_the_task_the_files_and_the_summary_survive_a_cut():
    async def check():
        made, _ = await _long_run()
        first = made.model.requests[-1].messages[0].text
        assert "apricot" in first
        assert "the summary" in first
        assert "Files that you read, all or in part:" in first
        assert "- file0\n" in first

    anyio.run(check)


def test_the_summary_is_asked_for_on_the_prefix_that_was_sent():
    async def check():
        made, _ = await _long_run()
        aside = made.model.asides[0]
        before = next(
            request
            for request in reversed(made.model.requests)
            if len(request.messages) <= len(aside.messages)
            and aside.messages[: len(request.messages)] == request.messages
        )
        assert aside.system == before.system
        assert aside.tools == before.tools

    anyio.run(check)


def test_a_failed_summary_leaves_the_ledger_and_a_notice():
    async def check():
        made = await bench(*[big(n) for n in range(8)], say("All read."), window=SMALL)
        made.model.summary = ServerFailure("no")
        finished = await made.submit("read every file")
        assert finished.outcome == "done"
        assert all(event.summary == "" for event in made.of(ev.CompactionDone))
        assert made.of(ev.Notice)[0].code == "summary_failed"

    anyio.run(check)


@pytest.mark.parametrize(("failure", "counted"), [(ServerFailure("no"), True), (Unreachable("gone"), False)])
def test_a_summary_that_failed_counts_as_far_as_the_server_had_its_prompt(failure, counted):
    async def check():
        made = await bench(*[big(n) for n in range(8)], say("All read."), window=SMALL)
        made.model.summary = failure
        await made.submit("read every file")
        cuts, state = made.of(ev.CompactionDone), made.session.state
        assert cuts
        assert all((cut.usage is not None) == counted for cut in cuts)
        assert state.steps_total == len(made.of(ev.StepFinished)) + counted * len(cuts)
        steps = sum(event.usage.prompt_tokens + event.usage.completion_tokens for event in made.of(ev.StepFinished))
        assert (tokens_spent(state) > steps) == counted

    anyio.run(check)


def test_a_command_compacts_at_once_and_passes_on_what_to_keep():
    async def check():
        made = await bench(big(1), say("ok"))
        await made.submit("look")
        await made.session.send(Compact(focus="the names"))
        await run_until_idle(made.session)
        assert made.of(ev.CompactionDone)[0].trigger == "command"
        assert "the names" in str(made.model.asides[0].messages[-1])

    anyio.run(check)


def test_a_group_of_calls_is_never_torn_apart():
    async def check():
        made = await bench(
            *[
                call(("read", f'{{"path": "a{n}", "size": 90}}'), ("read", f'{{"path": "b{n}", "size": 90}}'))
                for n in range(12)
            ],
            window=SMALL,
        )
        await made.submit()
        assert made.of(ev.CompactionDone)
        assert all(faults(request) == [] for request in made.model.requests)

    anyio.run(check)


def test_one_result_larger_than_what_is_kept_still_reaches_the_model():
    async def check():
        made = await bench(big(1), big(2), call(("read", '{"path": "huge", "size": 400}')), say("seen"), window=SMALL)
        finished = await made.submit("x" * 9000)
        assert finished.outcome == "done"
        assert "huge" in str(made.model.requests[-1].messages[-1])

    anyio.run(check)


def test_a_resumed_session_sends_the_bytes_that_the_cut_left():
    async def check():
        made, _ = await _long_run()
        again = await made.reopen()
        assert again.session.state.messages == made.session.state.messages

    anyio.run(check)


def test_every_text_of_the_user_survives_a_cut_also_one_that_stands_inside_a_later_one():
    async def check():
        made = await bench(say("z" * 3000), say("z" * 3000), say("z" * 3000))
        for text in ("2", "Delete nothing.", "Delete nothing. And answer with 2 words."):
            await made.submit(text)
        await made.session.send(Compact())
        await run_until_idle(made.session)
        (cut,) = made.of(ev.CompactionDone)
        assert cut.messages[0].text.startswith("2\n\n[The earlier conversation")
        assert "\nDelete nothing.\n" in cut.messages[0].text

    anyio.run(check)


def test_a_group_larger_than_the_window_is_shortened_and_not_cut_in_vain():
    async def check():
        reads = call(*(("read", f'{{"path": "f{n}", "size": 120}}') for n in range(6)))
        made = await bench(reads, ContextOverflow("too long", window=3000), say("Fine."), window=Window(tokens=32768))
        finished = await made.submit()
        assert finished.outcome == "done"
        (cut,) = made.of(ev.CompactionDone)
        assert cut.after_tokens < cut.before_tokens
        assert faults(made.model.requests[-1]) == []

    anyio.run(check)


def test_a_person_is_told_when_there_is_nothing_to_shorten():
    async def check():
        made = await bench(say("ok"))
        await made.submit("hi")
        await made.session.send(Compact())
        await run_until_idle(made.session)
        assert made.of(ev.CompactionDone) == []
        assert "too short" in made.of(ev.Notice)[-1].text
        assert len(made.model.requests) == 1, "no summary was asked for"

    anyio.run(check)


def test_in_a_4k_window_a_task_of_30_steps_ends_and_is_not_compacted_at_every_step():
    async def check():
        made = await bench(*[call(("read", f'{{"path": "f{n}", "size": 20}}')) for n in range(30)], say("Done."))
        made.session.window = Window(tokens=4096)
        finished = await made.submit("read them all")
        assert finished.outcome == "done"
        assert len(made.of(ev.CompactionDone)) < 12
        for aside in made.model.asides:
            assert sum(map(message_bytes, aside.messages)) // 4 + aside.max_tokens < 4096

    anyio.run(check)


def test_a_summary_is_asked_for_on_a_prompt_that_fits():
    async def check(tokens: int):
        made = await bench(*[big(n) for n in range(12)], window=Window(tokens=32768, keep_recent=500, keep_user=500))
        await made.submit("read every file")
        made.model.asides.clear()
        made.session.window = Window(tokens=tokens, keep_recent=500, keep_user=500)
        await compaction.compact(made.session, "window")
        assert made.of(ev.CompactionDone)
        (aside,) = made.model.asides
        return aside

    whole, shortened = anyio.run(check, 32768), anyio.run(check, 6000)
    assert sum(map(message_bytes, shortened.messages)) + 1200 < 6000 * 4 < sum(map(message_bytes, whole.messages))
    assert [message.role for message in shortened.messages] == [message.role for message in whole.messages]
    for aside in (whole, shortened):
        (words,) = re.findall(r"at most (\d+) words", aside.messages[-1].text)
        assert int(words) * 2 <= (aside.max_tokens or 0) < int(words) * 2 + 2


def test_a_person_is_told_how_much_of_their_own_words_a_cut_left_out():
    async def check():
        made = await bench(say("."), say("."), window=Window(tokens=6000, keep_recent=300, keep_user=400))
        await made.submit("The task. " + " ".join(f"word {number}" for number in range(500)))
        await made.submit("And then another thing.")
        await made.session.send(Compact())
        await run_until_idle(made.session)
        (notice,) = [event for event in made.of(ev.Notice) if event.code == "task_cut"]
        assert notice.level == "warning"
        lost = int(notice.text.split()[0].replace(",", ""))
        assert lost == len("The task. " + " ".join(f"word {number}" for number in range(500)))
        assert "shortened or left out" in notice.text
        await made.submit("Go on.")
        await made.session.send(Compact())
        await run_until_idle(made.session)
        assert sum(event.code == "task_cut" for event in made.of(ev.Notice)) == 1, "the same is not told again"

    anyio.run(check)


def test_nothing_is_told_of_words_that_are_all_kept():
    async def check():
        made, _ = await _long_run()
        assert made.of(ev.CompactionDone)
        assert not any(event.code == "task_cut" for event in made.of(ev.Notice))

    anyio.run(check)


def test_what_the_model_has_not_read_yet_is_kept_whole_and_not_sent_for_the_summary():
    async def check():
        made, _ = await _long_run(lines=150)
        for aside, cut in zip(made.model.asides, made.of(ev.CompactionDone), strict=True):
            unread = str(cut.messages[-1])
            assert "content of a line" in unread
            assert "left out" not in unread
            assert str(cut.messages[-1].parts[0].call_id) not in str(aside.messages)

    anyio.run(check)


def test_the_beginning_of_the_conversation_stays_as_it_was_sent_and_is_not_told_twice():
    async def check():
        made = await bench(
            *[big(n) for n in range(24)], window=SMALL, notes=[lambda: "<tools>\nthe catalogue\n</tools>"]
        )
        await made.submit("read every file")
        begun = made.model.requests[0].messages[0].text
        cuts = made.of(ev.CompactionDone)
        assert len(cuts) > 2
        for cut in cuts:
            assert cut.messages[0].text.startswith(begun + "\n\n[The earlier conversation")
            assert cut.messages[0].text.count("the catalogue") == cut.messages[0].text.count("read every file") == 1

    anyio.run(check)


def test_a_note_that_has_changed_since_the_beginning_is_told_as_it_is_now():
    async def check():
        notes = ["<tools>\nold\n</tools>"]
        made = await bench(
            *[big(n) for n in range(4)], say("ok"), *[big(n) for n in range(8)], notes=[lambda: notes[0]]
        )
        made.session.window = SMALL
        await made.submit("read four")
        notes[0] = "<tools>\nnew\n</tools>"
        await made.submit("read the others")
        sent = made.model.requests[-1].messages[0].text
        assert sent.index("old") < sent.index("[The earlier conversation") < sent.index("<tools>\nnew")

    anyio.run(check)


@pytest.mark.parametrize("answer", [call(("read", '{"path": "x"}')), say(""), say('<tool_call>{"name": "read"}')])
def test_a_model_that_answers_with_a_call_or_nothing_is_asked_once_more_without_tools(answer):
    async def check():
        notes = [lambda: "<tools>\nthe catalogue\n</tools>"]
        made = await bench(*[big(n) for n in range(16)], window=SMALL, notes=notes)
        made.model.summary = lambda request: answer if request.tools else say("what I found out")
        await made.submit("read every file")
        cuts = made.of(ev.CompactionDone)
        assert len(cuts) > 1
        assert all(cut.summary == "what I found out" for cut in cuts)
        assert [bool(aside.tools) for aside in made.model.asides] == [True, *[False] * len(cuts)], "learned"
        asked = made.model.asides[1]
        assert [message.role for message in asked.messages] == ["user"]
        assert "Assistant called read" in asked.messages[0].text
        assert "content of a line" in asked.messages[0].text
        assert "the catalogue" not in asked.messages[0].text
        assert asked.nonce == "", "no result is in it that a message could be joined with"

    anyio.run(check)


def test_a_model_that_never_summarises_is_not_asked_for_ever():
    async def check():
        made = await bench(*[big(n) for n in range(40)], window=SMALL)
        made.model.summary = call(("read", '{"path": "x"}'))
        await made.submit("read every file")
        assert len(made.of(ev.CompactionDone)) > 3
        assert len(made.model.asides) == 4
        made.model.answers[:] = [big(40), big(41), big(42), say("done")]
        await made.session.send(Compact())
        await made.submit("read on")
        assert len(made.model.asides) > 4, "/compact has it asked again"

    anyio.run(check)


def test_without_a_summary_the_models_own_words_and_its_last_summary_are_kept():
    async def check():
        reads = [call(("read", f'{{"path": "file{n}", "size": 250}}'), text=f"File {n} is blue.") for n in range(24)]
        made = await bench(*reads, window=SMALL)
        said = iter([say("the first summary")])
        made.model.summary = lambda request: next(said, say(""))
        await made.submit("read every file")
        first, second = made.of(ev.CompactionDone)[:2]
        assert "File 0 is blue." in first.messages[0].text
        assert second.summary == ""
        assert "the first summary" in second.messages[0].text

    anyio.run(check)


def test_after_an_overflow_a_summary_is_asked_for_within_the_window():
    async def check():
        overflow = ContextOverflow("too long", window=6000)
        made = await bench(*[big(n) for n in range(8)], overflow, say("Fine."), window=Window(tokens=32768))
        await made.submit("read every file")
        (cut,) = made.of(ev.CompactionDone)
        assert cut.trigger == "overflow"
        assert cut.summary == "the summary"
        assert sum(map(message_bytes, made.model.asides[0].messages)) < 6000 * 4

    anyio.run(check)
