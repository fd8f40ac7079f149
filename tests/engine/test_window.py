"""How many tokens a prompt has: learned from what the server counts."""

import anyio
import msgspec
from kit import Bench, bench, call, say

from lmagent.core import events as ev
from lmagent.core.agent import Window
from lmagent.core.model import ModelReply, ModelRequest, Usage
from lmagent.engine.context.window import learn_window
from lmagent.engine.state import BYTES_PER_TOKEN


def counting(made: Bench, ratio: float, reply: ModelReply | None = None):
    """An answer whose server counts one token for `ratio` bytes of the prompt."""

    def answer(_: ModelRequest) -> ModelReply:
        given = reply or call(("read", '{"path": "a", "size": 20}'))
        state = made.session.state
        tokens = int((state.fixed_bytes + state.sealed_bytes) / ratio)
        return ModelReply(given.message, given.finish_reason, Usage(tokens, 5, 0))

    return answer


def test_the_estimate_follows_what_the_model_counts():
    async def check(ratio: float, learned: float):
        made = await bench()
        made.model.answers = [counting(made, ratio) for _ in range(3)] + [say("done")]
        await made.submit()
        assert abs(made.session.state.bytes_per_token - learned) < 0.05 * learned

    anyio.run(check, 2.0, 2.0)
    anyio.run(check, 6.0, 6.0)
    anyio.run(check, 40.0, BYTES_PER_TOKEN)  # no tokenizer counts so: rubbish, or a prompt that was cut
    anyio.run(check, 0.5, BYTES_PER_TOKEN)


def test_a_model_with_small_tokens_is_given_less_at_a_time_and_cut_in_time():
    async def check(ratio: float) -> list[ev.CompactionDone]:
        made = await bench(window=Window(tokens=8000, keep_recent=2000, keep_user=500))
        made.model.answers = [
            counting(made, ratio, call(("read", f'{{"path": "f{n}", "size": 150}}'))) for n in range(9)
        ]
        finished = await made.submit()
        assert finished.outcome == "done"
        assert all(event.usage.prompt_tokens < 8000 for event in made.of(ev.StepFinished) if not event.usage.estimated)
        return made.of(ev.CompactionDone)

    assert len(anyio.run(check, 2.0)) > len(anyio.run(check, 5.0))


def test_another_model_is_measured_anew():
    async def check():
        made = await bench()
        made.model.answers = [counting(made, 2.0), say("done")]
        await made.submit()
        await made.session.record(ev.ModelChanged(model="other"))
        assert made.session.state.bytes_per_token == BYTES_PER_TOKEN

    anyio.run(check)


def test_a_prompt_that_no_cut_makes_fit_is_refused_unsent_and_says_why():
    async def check():
        made = await bench(system="Rules. " * 2000)

        async def stated(model: str, tokens: int) -> int:
            return 2048

        made.session.wiring.served_window = stated
        finished = await made.submit()
        assert finished.outcome == "error"
        assert finished.cause == "ContextOverflow"
        assert "it was not sent" in finished.reason
        assert "2,048" in finished.reason
        assert not made.model.requests

    anyio.run(check)


def test_a_prompt_that_is_only_a_little_too_large_by_estimate_is_left_to_the_server():
    async def check():
        made = await bench(system="Rules. " * 2000)

        async def stated(model: str, tokens: int) -> int:
            return 3300

        made.session.wiring.served_window = stated
        made.model.answers = [say("done")]
        assert (await made.submit()).outcome == "done"

    anyio.run(check)


def test_prompt_and_cap_on_the_reply_together_fit_the_window():
    async def check():
        made = await bench(say("done"), system="Rules. " * 2000, window=Window(tokens=6000))
        made.session.agent = msgspec.structs.replace(made.session.agent, max_tokens=3000)
        await made.submit()
        cap = made.model.requests[0].max_tokens
        assert 256 <= cap < 3000
        assert made.session.state.estimate_tokens() + cap <= 6000

    anyio.run(check)


def test_no_window_is_learned_that_nobody_serves():
    async def check():
        made = await bench(say("done"), window=Window(tokens=8000))
        await made.submit()
        learn_window(made.session, 1)
        assert made.session.window.tokens >= 256

    anyio.run(check)


def test_a_refusal_without_a_figure_is_believed_only_near_the_window_that_is_stated():
    async def check(stated: int | None) -> int:
        made = await bench(say("done"), system="Rules. " * 2000, window=Window(tokens=32768))
        await made.submit()
        made.session.stated_window = stated
        learn_window(made.session, None)
        return made.session.window.tokens

    assert anyio.run(check, 32768) == 32768
    assert anyio.run(check, 4096) < 4096
    assert anyio.run(check, None) < 4096
