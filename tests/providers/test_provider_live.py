"""What a caller sees while the reply is coming, and what is measured."""

from __future__ import annotations

import pytest
from provider_loopback import Answer, ask, delta, sse

from lmagent.core.model import Progress, TextChunk, ThinkingChunk


def test_text_and_thought_are_streamed_as_they_come() -> None:
    run = ask(
        Answer([sse(delta(reasoning="h"), delta(reasoning="m"), delta(content="a b"), delta("stop", content=" c"))])
    )
    assert run.events[:-1] == [ThinkingChunk("hm"), TextChunk("a b c")]  # it came in one read


def test_the_progress_of_reading_the_prompt_is_passed_on() -> None:
    progress = {
        **delta(role="assistant"),
        "prompt_progress": {"total": 200, "cache": 10, "processed": 50, "time_ms": 5},
    }
    run = ask(Answer([sse(progress, delta("stop", content="x"))]))
    assert run.events[0] == Progress(0.25, pytest.approx(0.01875))


def test_what_the_server_does_not_count_is_estimated() -> None:
    run = ask(Answer([sse(delta(content="x" * 40), delta("stop"))]))
    usage = run.reply.usage
    assert usage.estimated
    assert usage.completion_tokens == 10
    assert usage.prompt_tokens == len(run.server.requests[0].body) // 4


def test_times_are_measured() -> None:
    reply = ask(Answer([0.05, sse(delta(content="a"), done=False), 0.1, sse(delta("stop", content="b"))])).reply
    assert 0.04 < reply.first_token_s < reply.total_s - 0.08


def test_one_character_in_each_delta_of_a_hundred_thousand_is_no_burden() -> None:
    text = "".join(map(str, range(6000)))[:20_000]
    body = sse(*(delta(content=letter) for letter in text), delta("stop"))
    assert ask(Answer([body])).reply.message.text == text
