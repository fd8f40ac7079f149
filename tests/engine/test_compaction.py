import anyio
import pytest
from kit import bench, call, faults, say

from lmagent.core import events as ev
from lmagent.core.agent import Window
from lmagent.core.commands import Compact
from lmagent.core.errors import ContextOverflow, ServerFailure, Unreachable
from lmagent.engine import compaction
from lmagent.engine.budget import tokens_spent
from lmagent.engine.lane import run_until_idle

SMALL = Window(tokens=8000, keep_recent=2000, keep_user=500)


def big(number: int):
    return call(("read", f'{{"path": "file{number}", "size": 250}}'))


async def _long_run(**more):
    made = await bench(*[big(n) for n in range(12)], say("All read."), window=SMALL, **more)
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
        assert "file0 (read" in first

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
        assert "\n2\n" in cut.messages[0].text
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

    anyio.run(check)


def test_a_summary_is_not_asked_for_on_a_prompt_that_surely_does_not_fit():
    async def check(tokens: int) -> int:
        made = await bench(*[big(n) for n in range(12)], window=Window(tokens=32768, keep_recent=500, keep_user=500))
        await made.submit("read every file")
        made.model.asides.clear()
        made.session.window = Window(tokens=tokens, keep_recent=500, keep_user=500)
        await compaction.compact(made.session, "window")
        assert made.of(ev.CompactionDone)
        return len(made.model.asides)

    assert anyio.run(check, 32768) == 1
    assert anyio.run(check, 3000) == 0


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
        sent = made.session.state.messages[0].text
        assert abs(500 - lost / len("word 500 ") - sent.count("word ")) < 30
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
