"""Slow servers, under a clock that only pretends: who shows life is waited for, who does not is given up in time.

The transport is a fake that plays answers with pauses and keeps the limits of the real one: it fails when nothing comes
for longer than the request allows.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import anyio
import pytest

from lmagent.core.errors import LmagentError, ModelLoading, ServerFailure, Unreachable
from lmagent.core.messages import user
from lmagent.core.model import ModelReply, ModelRequest, Progress, Retrying
from lmagent.providers.openai_chat import OpenAIChat
from lmagent.providers.retry import RetryPolicy
from lmagent.providers.transport import SLOWEST, Timeouts, TransportError, TransportResponse

LIMIT = 560.0


class Clock:
    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.time += seconds


class Slow:
    """Plays answers: (status, [(seconds before it, bytes), …])."""

    def __init__(self, clock: Clock, *answers: tuple[int, list[tuple[float, bytes]]]) -> None:
        self._clock = clock
        self._answers = list(answers)
        self.sent = 0

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, timeouts: Timeouts
    ) -> TransportResponse:
        self.sent += 1
        status, pieces = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]

        async def chunks() -> AsyncIterator[bytes]:
            limit = timeouts.first_byte
            for pause, piece in pieces:
                if pause > limit:
                    self._clock.time += limit
                    raise TransportError("first_byte" if limit is timeouts.first_byte else "idle")
                self._clock.time += pause
                yield piece
                limit = timeouts.idle

        async def close() -> None:
            pass

        return TransportResponse(status, {"content-type": "text/event-stream"}, chunks(), close)

    async def aclose(self) -> None:
        pass


def event(payload: Any) -> bytes:
    return b"data: " + json.dumps(payload).encode() + b"\n\n"


def word(text: str, finish: str | None = None) -> bytes:
    return event({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}]})


def reading(done: int, total: int, seconds: float) -> bytes:
    progress = {"total": total, "cache": 0, "processed": done, "time_ms": seconds * 1000}
    return event({"choices": [], "prompt_progress": progress})


END: list[tuple[float, bytes]] = [(0.0, word("done", "stop")), (0.0, b"data: [DONE]\n\n")]


def play(
    *answers: tuple[int, list[tuple[float, bytes]]], limits: Timeouts | None = None, task: str = "hi"
) -> tuple[list[Any], LmagentError | None, Clock]:
    clock = Clock()
    events: list[Any] = []

    async def main() -> LmagentError | None:
        chat = OpenAIChat(
            "http://model.example/v1",
            transport=Slow(clock, *answers),
            clock=clock,
            timeouts=limits or Timeouts(first_byte=LIMIT, idle=LIMIT),
            retries=RetryPolicy(tries=1),
        )
        try:
            async for one in chat.stream(ModelRequest("m", "", (), (user(task),))):
                events.append(one)  # noqa: PERF401  # those before a failure count
        except LmagentError as failure:
            return failure
        return None

    return events, anyio.run(main), clock


def test_a_first_word_after_ten_minutes_of_progress_is_waited_for():
    steps = [(30.0, reading(1000 * n, 20_000, 30.0 * n)) for n in range(1, 21)]
    events, failure, clock = play((200, [*steps, (20.0, word("At last.")), *END]))
    assert failure is None
    assert isinstance(events[-1], ModelReply)
    assert clock.time == pytest.approx(620.0)
    third = [one for one in events if isinstance(one, Progress)][6]
    assert third.seconds_left == pytest.approx(600 - 7 * 30, rel=0.2)


def test_keep_alive_comments_are_life():
    beats = [(300.0, b": ping\n\n") for _ in range(10)]
    _, failure, clock = play((200, [*beats, (300.0, word("Hello there.")), *END]))
    assert failure is None
    assert clock.time > 3000


def test_a_token_a_second_for_an_hour_is_no_stall():
    words = [(1.0, word("w ")) for _ in range(3600)]
    events, failure, _ = play((200, [*words, *END]))
    assert failure is None
    assert events[-1].message.text.count("w") == 3600


def test_a_model_that_takes_minutes_to_load_is_waited_for_and_told_once():
    loading = (503, [(0.0, json.dumps({"error": {"code": 503, "message": "Loading model"}}).encode())])
    events, failure, clock = play(*[loading] * 200, (200, [(5.0, word("Hello there.")), *END]))
    assert failure is None
    assert clock.time > 400
    assert sum(isinstance(one, Retrying) for one in events) == 1
    assert "loading" in next(one.reason for one in events if isinstance(one, Retrying))


def test_a_model_that_never_loads_is_given_up_at_the_limit():
    _, failure, clock = play((503, [(0.0, b'{"error": {"message": "Loading model", "code": 503}}')]))
    assert isinstance(failure, ModelLoading)
    assert LIMIT <= clock.time < LIMIT + 5


@pytest.mark.parametrize(
    ("pieces", "spent"),
    [
        ([(10_000.0, word("too late"))], LIMIT),
        ([(100.0, reading(10, 1000, 100.0)), (10_000.0, word("too late"))], LIMIT + 100),
        ([(1.0, word("I stop in the midst of")), (10_000.0, word("it"))], LIMIT + 1),
        ([(1.0, b": ping\n\n"), (10_000.0, b": ping\n\n")], LIMIT + 1),
    ],
)
def test_a_stall_is_noticed_within_its_limit(pieces, spent):
    _, failure, clock = play((200, pieces))
    assert isinstance(failure, LmagentError)
    assert not isinstance(failure, ServerFailure) or failure.message
    assert clock.time == pytest.approx(spent)


LONG = "word " * 24_000  # 30,000 tokens
PATIENT = Timeouts(first_byte=LIMIT, idle=LIMIT, per_token=SLOWEST)


def test_a_server_that_reads_a_long_prompt_in_silence_is_waited_for_as_long_as_that_may_take():
    _, failure, clock = play((200, [(2900.0, word("At last.")), *END]), limits=PATIENT, task=LONG)
    assert failure is None
    assert clock.time == pytest.approx(2900.0)


def test_a_short_prompt_gets_no_more_patience_for_that():
    _, failure, clock = play((200, [(600.0, word("At last.")), *END]), limits=PATIENT)
    assert isinstance(failure, Unreachable)
    assert "560" in failure.message
    assert clock.time == pytest.approx(LIMIT)


def test_behind_the_first_byte_a_long_prompt_is_no_excuse():
    _, failure, clock = play((200, [(5.0, word("Well ")), (600.0, word("then.")), *END]), limits=PATIENT, task=LONG)
    assert isinstance(failure, Unreachable)
    assert clock.time == pytest.approx(5.0 + LIMIT)
