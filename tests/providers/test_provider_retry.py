# ruff: noqa: E501  (tables of raw answers read best one to a line)
"""When a call is tried again, how the request adapts to a server, how long silence is borne."""

from __future__ import annotations

import json
import time
from typing import Any

import anyio
import pytest
from provider_loopback import QUICK, Answer, TestClock, ask, delta, loopback, request, sse

from lmagent.core.errors import AuthError, ProviderError, ServerFailure, Unreachable
from lmagent.core.model import Retrying, TextChunk
from lmagent.providers import openai_chat
from lmagent.providers.openai_chat import OpenAIChat
from lmagent.providers.retry import RetryPolicy, next_delay
from lmagent.providers.transport import HttpTransport, Timeouts

OK = Answer([sse(delta("stop", content="Hello"))])


def failing(status: int, headers: dict[str, str] | None = None) -> Answer:
    return Answer([b'{"error":"no"}'], status=status, headers=headers or {}, content_type="application/json")


def refusing(message: str, status: int = 400) -> Answer:
    return Answer([json.dumps({"error": {"message": message}}).encode()], status=status)


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504])
def test_a_passing_failure_is_tried_again_and_said(status: int) -> None:
    run = ask(failing(status), OK)
    assert run.reply.message.text == "Hello"
    assert isinstance(run.events[0], Retrying)
    assert run.events[0].attempt == 2
    assert run.clock.slept == [run.events[0].delay]


@pytest.mark.parametrize("status", [400, 401, 402, 404, 422])
def test_a_lasting_failure_is_not(status: int) -> None:
    run = ask(failing(status), OK)
    assert isinstance(run.error, ProviderError)
    assert len(run.server.requests) == 1


def test_three_tries_are_all_and_the_delay_grows() -> None:
    run = ask(failing(500))
    assert isinstance(run.error, ServerFailure)
    assert len(run.server.requests) == 3
    first, second = run.clock.slept
    assert 2.25 <= first <= 3.75
    assert 4.5 <= second <= 7.5


def test_the_wait_that_the_server_asks_for_is_kept() -> None:
    run = ask(failing(429, {"Retry-After": "40"}), OK)
    assert 40 <= run.clock.slept[0] <= 44


def test_a_wait_beyond_patience_is_reported_and_not_waited() -> None:
    run = ask(failing(429, {"Retry-After": "3600"}), OK)
    assert isinstance(run.error, ServerFailure)
    assert run.error.retry_after == 3600
    assert run.clock.slept == []


def test_a_stream_cut_before_anything_was_shown_is_tried_again() -> None:
    run = ask(Answer([sse(delta(role="assistant"), done=False)], end="cut"), OK)
    assert run.reply.message.text == "Hello"
    assert len(run.server.requests) == 2


def test_a_connection_that_dies_before_the_answer_is_tried_again() -> None:
    run = ask(Answer(end="cut"), OK)
    assert run.reply.message.text == "Hello"


def policy_delay(failure: ProviderError, attempt: int, **fields: Any) -> float | None:
    values: dict[str, Any] = {"local": False, "random": lambda: 0.5, **fields}
    return next_delay(RetryPolicy(), failure, attempt, **values)


def test_a_server_on_this_machine_that_does_not_listen_is_tried_twice_quickly() -> None:
    refused = Unreachable("no", retryable=True)
    assert policy_delay(refused, 1, local=True) == 0.25
    assert policy_delay(refused, 2, local=True) is None
    assert policy_delay(refused, 2) == 6.0


def test_what_was_shown_is_never_repeated() -> None:
    assert policy_delay(ServerFailure("cut", retryable=True, partial=True), 1) is None


def test_nothing_listening_fails_fast_with_the_url() -> None:
    async def go() -> tuple[Exception, TestClock]:
        async with loopback(OK) as server:
            url = server.url
        clock = TestClock()
        chat = OpenAIChat(url, transport=HttpTransport({}), clock=clock, timeouts=QUICK)
        with pytest.raises(Unreachable) as caught:
            _ = [event async for event in chat.stream(request())]
        assert url in caught.value.message
        await chat.aclose()
        return caught.value, clock

    error, clock = anyio.run(go)
    assert clock.slept == [0.25]
    assert "start LM Studio" in str(error)


# --- silence ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("timeouts", [Timeouts(2, 0.15, 5), Timeouts(2, 0.15, 0.15), Timeouts(2, 0.15, 0.05)])
def test_a_server_that_does_not_begin_is_given_up_and_not_asked_again(timeouts: Timeouts) -> None:
    for silent in (Answer(before_head=1.0), Answer(end="open")):
        begun = time.monotonic()
        run = ask(silent, timeouts=timeouts)
        assert isinstance(run.error, Unreachable)
        assert "began no answer" in run.error.message
        assert "LLM_TIMEOUT" in run.error.terminal
        assert not run.error.retryable, "it may still be at work on the first try"
        assert time.monotonic() - begun < 0.9
        assert len(run.server.requests) == 1


@pytest.mark.parametrize("timeouts", [Timeouts(2, 5, 0.15), Timeouts(2, 0.15, 0.15)])
def test_a_stream_that_stalls_in_the_middle_is_given_up(timeouts: Timeouts) -> None:
    run = ask(Answer([sse(delta(content="Hel lo"), done=False)], end="open"), timeouts=timeouts)
    assert run.events == [TextChunk("Hel lo")]
    assert isinstance(run.error, Unreachable)
    assert "in the middle" in run.error.message
    assert run.error.partial


def test_slow_progress_is_no_silence_however_long_it_takes() -> None:
    drops = [piece for n in range(6) for piece in (sse(delta(content=str(n)), done=False), 0.08)]
    run = ask(Answer([*drops, sse(delta("stop"))]), timeouts=Timeouts(2, 0.25, 0.25))
    assert run.reply.message.text == "012345"
    assert run.reply.total_s > 0.4


def test_keep_alive_comments_count_as_life() -> None:
    alive = [piece for _ in range(6) for piece in (b": keep-alive\n\n", 0.08)]
    run = ask(Answer([*alive, sse(delta("stop", content="x"))]), timeouts=Timeouts(2, 0.25, 0.25))
    assert run.reply.message.text == "x"


@pytest.mark.parametrize(
    ("end", "after"),
    [
        (sse(delta("stop", content="x")), b": keep-alive\n\n"),
        (sse(delta("stop", content="x"), done=False), b": keep-alive\n\n"),
        (sse(delta("stop", content="x"), done=False), sse(delta(content=""), done=False)),
    ],
)
def test_a_complete_reply_is_not_held_up_by_keep_alives_behind_it(
    monkeypatch: pytest.MonkeyPatch, end: bytes, after: bytes
) -> None:
    monkeypatch.setattr(openai_chat, "TAIL", 0.3)
    monkeypatch.setattr(openai_chat, "LONG_TAIL", 0.6)
    run = ask(Answer([end, *[piece for _ in range(1200) for piece in (after, 0.05)]]))  # a minute
    assert run.reply.message.text == "x"
    assert run.reply.total_s < 30


def test_a_slow_first_byte_is_borne_where_the_time_for_it_is_longer() -> None:
    run = ask(Answer([0.3, sse(delta("stop", content="x"))]), timeouts=Timeouts(2, 5, 0.15))
    assert run.reply.message.text == "x"


# --- adapting -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "asked", "gone", "came"),
    [
        ("Unrecognized request argument supplied: stream_options", {}, "stream_options", None),
        ("tool_choice is not available", {"tool_choice": "none"}, "tool_choice", None),
        ("'temperature' does not support 0.65 with this model", {"temperature": 0.65}, "temperature", None),
        ("Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens'", {"max_tokens": 5}, "max_tokens", "max_completion_tokens"),
        ("response_format is not supported", {"response_schema": {"type": "object"}}, "response_format", None),
    ],
)  # fmt: skip
def test_a_field_that_the_server_does_not_know_is_dropped_once_for_good(
    message: str, asked: dict[str, Any], gone: str, came: str | None
) -> None:
    async def go() -> list[dict[str, Any]]:
        async with loopback(refusing(message), OK) as server:
            chat = OpenAIChat(server.url, transport=HttpTransport({}), clock=TestClock(), timeouts=QUICK)
            for _ in range(2):
                events = [event async for event in chat.stream(request(**asked))]
                assert not any(isinstance(event, Retrying) for event in events)
            await chat.aclose()
            return [seen.json for seen in server.requests]

    first, second, third = anyio.run(go)
    assert gone in first
    assert gone not in second
    assert gone not in third
    assert came is None or came in second


def test_a_field_named_in_the_place_of_a_validation_error_is_found() -> None:
    detail = {"detail": [{"loc": ["body", "stream_options"], "msg": "Extra inputs are not permitted"}]}
    run = ask(Answer([json.dumps(detail).encode()], status=422), OK)
    assert run.reply.message.text == "Hello"


def test_a_bad_value_is_no_unknown_field() -> None:
    run = ask(refusing("temperature must be between 0 and 2"), OK, asked=request(temperature=9))
    assert isinstance(run.error, ProviderError)


def test_a_server_that_goes_on_refusing_ends_the_call() -> None:
    run = ask(refusing("unknown field stream_options"))
    assert isinstance(run.error, ProviderError)
    assert len(run.server.requests) == 2


# --- the connection -----------------------------------------------------------------------------------------


def test_a_session_uses_one_connection() -> None:
    async def go() -> tuple[int, int]:
        async with loopback(OK) as server:
            chat = OpenAIChat(server.url, transport=HttpTransport({}), clock=TestClock(), timeouts=QUICK)
            for _ in range(5):
                _ = [event async for event in chat.stream(request())]
            await chat.aclose()
            return server.connections, len(server.requests)

    assert anyio.run(go) == (1, 5)


def test_an_error_answer_does_not_cost_the_connection() -> None:
    run = ask(failing(500), failing(503), OK)
    assert run.reply.message.text == "Hello"
    assert run.server.connections == 1


def test_a_kept_alive_connection_that_the_server_closed_is_replaced_unnoticed() -> None:
    closing = Answer([sse(delta("stop", content="one"))], chunked=False)

    async def go() -> list[Any]:
        async with loopback(closing, OK) as server:
            clock = TestClock()
            chat = OpenAIChat(server.url, transport=HttpTransport({}), clock=clock, timeouts=QUICK)
            events = [event for _ in range(2) for event in [item async for item in chat.stream(request())]]
            await chat.aclose()
            assert clock.slept == []
            return events

    assert not any(isinstance(event, Retrying) for event in anyio.run(go))


def test_leaving_a_stream_closes_the_connection_so_that_the_server_stops() -> None:
    async def go() -> int:
        endless = Answer([sse(delta(content="x"), done=False)], end="open")
        async with loopback(endless, OK) as server:
            chat = OpenAIChat(server.url, transport=HttpTransport({}), clock=TestClock(), timeouts=QUICK)
            with anyio.move_on_after(0.2) as scope:
                async for _ in chat.stream(request()):
                    pass
            assert scope.cancelled_caught
            _ = [event async for event in chat.stream(request())]
            await chat.aclose()
            return server.connections

    assert anyio.run(go) == 2


def test_the_key_is_sent_as_a_bearer_token_and_only_if_there_is_one() -> None:
    assert ask(OK, key="k").server.requests[0].headers["authorization"] == "Bearer k"
    assert "authorization" not in ask(OK).server.requests[0].headers


def test_the_request_goes_to_the_chat_route_under_the_base_url() -> None:
    seen = ask(OK).server.requests[0]
    assert (seen.method, seen.path) == ("POST", "/v1/chat/completions")
    assert seen.headers["content-length"] == str(len(seen.body))


def test_a_server_elsewhere_is_reached_through_the_proxy() -> None:
    async def go() -> list[str]:
        async with loopback(OK) as proxy:
            transport = HttpTransport({"http_proxy": proxy.url.replace("//", "//me:secret@")})
            chat = OpenAIChat("http://far.invalid/v1", transport=transport, clock=TestClock(), timeouts=QUICK)
            _ = [event async for event in chat.stream(request())]
            await chat.aclose()
            seen = proxy.requests[0]
            return [seen.path, seen.headers["host"], seen.headers["proxy-authorization"]]

    path, host, authorization = anyio.run(go)
    assert path == "http://far.invalid/v1/chat/completions"
    assert host == "far.invalid"
    assert authorization.startswith("Basic ")


def test_a_host_that_does_not_exist_is_named() -> None:
    async def go() -> ProviderError:
        once = RetryPolicy(tries=1)
        chat = OpenAIChat(
            "http://no-such-host.invalid", transport=HttpTransport({}), clock=TestClock(), timeouts=QUICK, retries=once
        )
        with pytest.raises(Unreachable) as caught:
            _ = [event async for event in chat.stream(request())]
        await chat.aclose()
        return caught.value

    assert "no connection to http://no-such-host.invalid: " in anyio.run(go).message


def test_a_wrong_key_is_said_at_once() -> None:
    run = ask(failing(401), OK, key="wrong")
    assert isinstance(run.error, AuthError)
