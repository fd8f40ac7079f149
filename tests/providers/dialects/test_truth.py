"""A prompt that a server cuts in silence is noticed by its counts; an honest server is never suspected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest
from dialect_kit import request
from hypothesis import given
from hypothesis import strategies as st
from testkit.servers import (
    GenericServer,
    LlamaCppServer,
    LMStudioServer,
    OllamaServer,
    OpenRouterServer,
    VLLMServer,
)
from testkit.servers.base import DialectServer, Lies

from lmagent.core.errors import ContextOverflow
from lmagent.core.messages import assistant, user
from lmagent.core.model import ModelReply, ModelRequest, Usage
from lmagent.providers import jsontext
from lmagent.providers.dialects.truth import PromptCut, TruthMeter
from lmagent.providers.encode import chat_body
from lmagent.providers.openai_chat import OpenAIChat
from lmagent.providers.transport import HttpTransport
from lmagent.testing import say
from lmagent.testing.fakes import FakeClock


def counted(tokens: int) -> Usage:
    return Usage(prompt_tokens=tokens, completion_tokens=1)


def size(wanted: ModelRequest) -> int:
    return len(jsontext.dumps(chat_body(wanted)["messages"]))


def converse(server: DialectServer, *, turns: int = 12, each: int = 4000, window: int | None = None) -> list[str]:
    """A conversation that only grows; for each turn `ok`, `cut`, `refused` or `unverified`."""
    told: list[str] = []
    meter = TruthMeter()

    async def main() -> None:
        client = OpenAIChat(server.base_url, transport=HttpTransport({}), clock=FakeClock(auto=True))
        messages = [user("Begin.")]
        try:
            for turn in range(turns):
                wanted = request(model=server.model, messages=list(messages))
                try:
                    last = [event async for event in client.stream(wanted)][-1]
                except ContextOverflow:
                    told.append("refused")
                    return
                assert isinstance(last, ModelReply)
                cut = meter.check(size(wanted), last.usage, window)
                told.append("cut" if cut else "ok" if meter.counted else "unverified")
                if cut:
                    return
                messages += [assistant("yes"), user(f"turn {turn}: " + "some words of text " * (each // 19))]
        finally:
            await client.aclose()

    anyio.run(main)
    return told


FAKES: dict[str, Callable[..., DialectServer]] = {
    "llama.cpp": lambda **more: LlamaCppServer(lambda _: say("yes"), context=more.pop("window", 8192), **more),
    "LM Studio": lambda **more: LMStudioServer(lambda _: say("yes"), **more),
    "vLLM": lambda **more: VLLMServer(lambda _: say("yes"), **more),
    "OpenRouter": lambda **more: OpenRouterServer(lambda _: say("yes"), **({"window": 8193} | more)),
    "generic": lambda **more: GenericServer(lambda _: say("yes"), **more),
}


@pytest.mark.parametrize("stated", [None, 131_072, 1024])
@pytest.mark.parametrize("name", FAKES)
def test_no_silent_cut_is_believed_whatever_the_server_states(name: str, stated: int | None) -> None:
    with FAKES[name](lies=Lies(cut=True, stated_window=stated)) as server:
        told = converse(server)
    assert told[-1] == "cut"
    assert "unverified" not in told


@pytest.mark.parametrize("keeps", [1.0, 0.5])
def test_ollamas_own_cut_is_noticed_on_the_turn_on_which_it_happens(keeps: float) -> None:
    """With the window that `/api/ps` states by then, even a cut of a few tokens."""
    with OllamaServer(lambda _: say("yes"), default=4096, keeps=keeps) as server:
        told = converse(server, window=4096)
        sizes = [row.size // 4 for row in server.prefix.rows]
    assert told[-1] == "cut"
    assert sizes[-2] <= 4096 < sizes[-1]


def test_without_a_known_window_a_cut_of_a_few_tokens_shows_with_the_next_prompt() -> None:
    with OllamaServer(lambda _: say("yes"), default=4096) as server:
        assert converse(server)[-1] == "cut"
        sizes = [row.size // 4 for row in server.prefix.rows]
    assert sizes[-2] <= 4096 * 1.01


def test_a_window_that_shrinks_between_requests_is_noticed() -> None:
    with FAKES["generic"](lies=Lies(cut=True, shrinks=(8192, 8192, 8192, 8192, 2048))) as server:
        assert converse(server) == ["ok"] * 4 + ["cut"]


def test_openrouter_told_not_to_transform_refuses_instead() -> None:
    with OpenRouterServer(lambda _: say("yes"), window=4096) as server:
        assert converse(server)[-1] == "cut", "small models have their prompts cut by default"


@pytest.mark.parametrize("name", FAKES)
def test_an_honest_server_is_never_suspected(name: str) -> None:
    with FAKES[name]() as server:
        told = converse(server)
    assert told[-1] == "refused"
    assert set(told[:-1]) == {"ok"}


@pytest.mark.parametrize("lie", ["zero", "missing", "wrong_field"])
def test_without_counts_nothing_is_verified_and_nothing_is_claimed(lie: Any) -> None:
    with FAKES["generic"](lies=Lies(cut=True, usage=lie)) as server:
        assert converse(server, turns=6) == ["unverified"] * 6


def test_a_prompt_that_cannot_be_so_short_is_noticed_on_the_first_request() -> None:
    assert TruthMeter().check(120_000, counted(4096)) == PromptCut(4096, 10_000, sure=False)


def test_a_count_that_falls_is_sure() -> None:
    meter = TruthMeter()
    assert meter.check(20_000, counted(5000)) is None
    cut = meter.check(24_000, counted(4096))
    assert cut is not None
    assert cut.sure


def test_the_next_prompt_is_estimated_from_the_last_count() -> None:
    meter = TruthMeter()
    assert meter.estimate(4000) == 1000
    meter.check(4000, counted(3000))  # 2,000 of them are the tools, which are not in the messages
    assert meter.estimate(8000) == 4000
    meter.check(24_000, counted(13_000))
    assert meter.estimate(28_000) == 15_000, "this text makes a token of two bytes"


def test_a_count_that_stands_still_while_the_prompt_grows_is_sure() -> None:
    meter = TruthMeter()
    assert meter.check(12_000, counted(3700)) is None
    assert meter.check(13_600, counted(4095)) is None
    cut = meter.check(14_100, counted(4095))
    assert cut is not None
    assert cut.sure


def test_a_count_that_grows_far_less_than_the_prompt_is_suspected_whatever_little_was_added() -> None:
    meter = TruthMeter()
    assert meter.check(12_000, counted(3734)) is None
    cut = meter.check(13_300, counted(3816))
    assert cut is not None
    assert not cut.sure


def test_small_additions_that_make_no_tokens_add_up() -> None:
    meter = TruthMeter()
    assert meter.check(12_000, counted(3900)) is None
    assert meter.check(12_600, counted(4095)) is None
    assert meter.check(12_800, counted(4095)) is None
    cut = meter.check(13_050, counted(4095))
    assert cut is not None
    assert cut.sure


@pytest.mark.parametrize("constant", [1, 100, 1000, 5000])
def test_a_server_that_always_says_the_same_does_not_count(constant: int) -> None:
    meter = TruthMeter()
    for size in range(3000, 9000, 1000):
        assert meter.check(size, counted(constant)) is None
    assert meter.counted == 0


def test_a_prompt_that_fills_the_window_from_the_first_request_on_is_still_a_cut() -> None:
    meter = TruthMeter()
    assert meter.check(20_000, counted(4095)) is None
    cut = meter.check(21_000, counted(4095))
    assert cut is not None
    assert cut.sure


def test_a_count_above_the_stated_window_is_no_cut() -> None:
    meter = TruthMeter()
    assert meter.check(12_000, counted(3900), window=4096) is None
    assert meter.check(13_000, counted(4295), window=4096) is None
    assert meter.counted == 4295
    assert meter.check(14_000, counted(4096), window=4096) is not None, "a full window still is one"


def test_tokens_from_the_cache_that_are_not_in_the_count_are_added() -> None:
    meter = TruthMeter()
    assert meter.check(5000, Usage(1250, 5)) is None
    for last, size in ((1250, 8000), (2000, 11_000), (2750, 20_000)):
        assert meter.check(size, Usage(size // 4 - last, 5, cached_tokens=last)) is None
        assert meter.counted == size // 4
    cut = meter.check(24_000, Usage(1000, 5, cached_tokens=1000))
    assert cut is not None, "a cut shows in the sum too"


def test_a_part_of_the_prompt_in_the_cache_does_not_hide_a_cut() -> None:
    meter = TruthMeter()
    meter.check(16_000, counted(4050))
    assert meter.check(17_500, Usage(3700, 5, cached_tokens=1500)) is not None


def test_an_absurd_count_is_passed_over() -> None:
    meter = TruthMeter()
    for size, tokens, believed in (
        (8000, 2000, 2000),
        (9000, 10**12, 0),
        (10_000, 2500, 2500),
        (11_000, 60_000, 60_000),
    ):
        assert meter.check(size, counted(tokens)) is None
        assert meter.counted == believed, "there may be pictures, but not so many"


@given(
    st.lists(st.tuples(st.integers(0, 60_000), st.floats(2.0, 6.0)), min_size=1, max_size=30),
    st.integers(0, 4000),
)
def test_texts_of_any_usual_kind_are_never_called_cut(added: list[tuple[int, float]], tools: int) -> None:
    """Prose, code and JSON have 2 to 6 bytes a token, whichever way they alternate: at worst it is not `sure`."""
    meter = TruthMeter()
    total, tokens = 0, float(tools)
    for grown, ratio in added:
        total, tokens = total + grown, tokens + grown / ratio
        cut = meter.check(total, counted(int(tokens) or 1))
        assert cut is None or not cut.sure
