from __future__ import annotations

import json
from pathlib import Path

import anyio
import pytest
from provider_loopback import QUICK, Answer, TestClock, call, cut_every, delta, loopback, request, sse

from lmagent.core.errors import ConfigError, ProviderError, ServerFailure, Unreachable
from lmagent.core.messages import user
from lmagent.core.model import ModelEvent, ModelReply, ModelRequest
from lmagent.providers.cassette import RecordingTransport, ReplayTransport
from lmagent.providers.openai_chat import OpenAIChat
from lmagent.providers.retry import RetryPolicy
from lmagent.providers.transport import HttpTransport, Transport

CALL = call('{"path":"größer 🦙"}', id="c1", index=0, name="read")
RAW = 'data: {"choices":[{"delta":{"content":"größer 🦙"}}]}\n\n'.encode()
FIRST = Answer(cut_every(sse(RAW, delta(tool_calls=[CALL]), delta("tool_calls")), 5))
SECOND = Answer([sse(delta("stop", content="done"))])


async def talk(transport: Transport, url: str, requests: list[ModelRequest]) -> list[ModelEvent | Exception]:
    chat = OpenAIChat(
        url, "sk-secret", transport=transport, clock=TestClock(), timeouts=QUICK, retries=RetryPolicy(tries=2)
    )
    events: list[ModelEvent | Exception] = []
    try:
        for asked in requests:
            try:
                async for event in chat.stream(asked):
                    events.append(event)  # noqa: PERF401  # those before a failure count
            except ProviderError as error:
                events.append(error)
    finally:
        with anyio.CancelScope(shield=True):
            await chat.aclose()
    return events


def record(path: Path, requests: list[ModelRequest], *answers: Answer) -> list[ModelEvent | Exception]:
    async def go() -> list[ModelEvent | Exception]:
        async with loopback(*answers) as server:
            return await talk(RecordingTransport(HttpTransport({}), path), server.url, requests)

    return anyio.run(go)


def replay(path: Path, requests: list[ModelRequest]) -> tuple[list[ModelEvent | Exception], ReplayTransport]:
    tape = ReplayTransport(path)
    return anyio.run(talk, tape, "http://nowhere.invalid/v1", requests), tape


def timeless(events: list[ModelEvent | Exception]) -> list[object]:
    def lasting(event: ModelEvent | Exception) -> object:
        if isinstance(event, ModelReply):
            return event.message, event.finish_reason, event.usage
        return type(event) if isinstance(event, Exception) else event

    return [lasting(event) for event in events]


def test_what_was_recorded_plays_back_the_same_offline(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    requests = [request("one"), request("two")]
    recorded = record(path, requests, FIRST, SECOND)
    played, tape = replay(path, requests)
    assert timeless(played) == timeless(recorded)
    assert tape.deviations == []
    assert (tape.played, tape.remaining) == (2, 0)


def test_the_file_is_readable_and_holds_no_key(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    record(path, [request("one")], FIRST)
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    assert lines[0] == {"cassette": 1, "by": "lmagent"}
    assert json.loads(lines[1]["request"])["messages"][-1]["content"] == "one"
    assert lines[1]["headers"] == {"content-type": "text/event-stream"}
    assert b"secret" not in path.read_bytes()


def test_a_character_that_was_cut_in_half_is_kept_as_bytes(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    text = sse(delta(content="X"), done=False)
    record(path, [request()], Answer([text[: text.index(b"X")] + "é".encode()[:1]], end="cut"))
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    assert any(isinstance(chunk, dict) for chunk in lines[1]["chunks"])


def test_a_broken_stream_is_recorded_as_far_as_it_came_and_breaks_again(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    recorded = record(path, [request()], Answer([sse(delta(content="Hel lo"), done=False)], end="cut"))
    played, _ = replay(path, [request()])
    assert timeless(played) == timeless(recorded)
    assert isinstance(played[-1], ServerFailure)


def test_failures_and_retries_play_back_too(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    record(path, [request()], Answer([b'{"error":"busy"}'], status=503), SECOND)
    played, tape = replay(path, [request()])
    assert isinstance(played[-1], ModelReply)
    assert tape.played == 2


def test_a_refused_connection_is_recorded(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"

    async def go() -> None:
        async with loopback(SECOND) as server:
            url = server.url
        await talk(RecordingTransport(HttpTransport({}), path), url, [request()])

    anyio.run(go)
    played, _ = replay(path, [request()])
    assert isinstance(played[-1], Unreachable)


def test_an_exchange_is_on_file_before_the_next_begins(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"

    async def go() -> int:
        async with loopback(SECOND) as server:
            recorder = RecordingTransport(HttpTransport({}), path)
            chat = OpenAIChat(server.url, transport=recorder, clock=TestClock(), timeouts=QUICK)
            _ = [event async for event in chat.stream(request())]
            count = len(path.read_bytes().splitlines())
            await chat.aclose()
            return count

    assert anyio.run(go) == 2


def test_an_interrupted_stream_is_recorded(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"

    async def go() -> None:
        async with loopback(Answer([sse(delta(content="Hel"), done=False)], end="open")) as server:
            with anyio.move_on_after(0.2):
                await talk(RecordingTransport(HttpTransport({}), path), server.url, [request()])

    anyio.run(go)
    line = json.loads(path.read_bytes().splitlines()[1])
    assert line["end"] == "closed"
    assert "Hel" in line["chunks"][0]


def test_a_request_that_differs_is_answered_and_noted_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    record(path, [request("one")], SECOND)
    played, tape = replay(path, [request("other")])
    assert isinstance(played[-1], ModelReply)
    (deviation,) = tape.deviations
    assert deviation.exchange == 1
    assert deviation.recorded.endswith('"content":"one"}]}')
    assert deviation.got.endswith('"content":"other"}]}')


def test_a_longer_request_differs_at_its_first_new_message(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    record(path, [request("one")], SECOND)
    _, tape = replay(path, [request(messages=[user("one"), user("two")])])
    assert tape.deviations[0].recorded.endswith('"one"}]}')
    assert tape.deviations[0].got.endswith('"two"}]}')


def test_a_run_that_asks_for_more_than_was_recorded_ends_with_an_explanation(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    record(path, [request("one")], SECOND)
    played, _ = replay(path, [request("one"), request("two")])
    assert isinstance(played[-1], ProviderError)
    assert "holds 1 exchanges" in str(played[-1])
    assert "--record" in str(played[-1])


def test_a_cassette_is_continued(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    record(path, [request("one")], SECOND)
    record(path, [request("two")], SECOND)
    assert ReplayTransport(path).remaining == 2


def test_a_torn_last_line_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    record(path, [request("one")], SECOND)
    with path.open("ab") as file:
        file.write(b'{"method":"POST","pa')
    assert ReplayTransport(path).remaining == 1
    record(path, [request("two")], SECOND)
    assert ReplayTransport(path).remaining == 2


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"hello\n", "is not a cassette"),
        (b"", "is not a cassette"),
        (b'{"cassette": 9}\n', "version 9"),
        (b'{"cassette": 1}\n{"no\n{"method":"GET","path":"/","request":""}\n', "line 2"),
    ],
)
def test_a_file_that_is_no_cassette_is_refused(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "x"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=words):
        ReplayTransport(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        ReplayTransport(tmp_path / "missing")


def test_a_foreign_file_is_never_recorded_over(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("mine\n")
    with pytest.raises(ConfigError):
        RecordingTransport(HttpTransport({}), path)
    assert path.read_text() == "mine\n"
