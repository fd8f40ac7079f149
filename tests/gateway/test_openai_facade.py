"""OpenAI's API: the openai client and pydantic-ai drive the agent as if it were a model."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anyio
import openai
import pytest
from gateway_kit import Running, gateway, shared, until
from images_kit import gif, png
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from lmagent.testing.script import call, hang, say, slow, status, think

HEY = {"role": "user", "content": "hey"}
AGENT = "agent/lmagent"


@contextmanager
def client(running: Running) -> Iterator[openai.OpenAI]:
    token = running.headers["Authorization"].removeprefix("Bearer ")
    with openai.OpenAI(base_url=f"{running.url}/v1", api_key=token, max_retries=0, timeout=30) as made:
        yield made


def said(running: Running) -> str:
    """What the model was told last by a user."""
    asked = [request for request in running.model.requests if request.method == "POST"]
    last = [message for message in asked[-1].body["messages"] if message["role"] == "user"][-1]["content"]
    return last if isinstance(last, str) else "".join(part.get("text", "") for part in last)


def test_the_agents_are_listed_as_models() -> None:
    with shared() as running, client(running) as ours:
        assert [model.id for model in ours.models.list()] == [AGENT, f"{AGENT}:test-model"]


def test_a_completion_is_a_turn() -> None:
    with shared([think("Hm.", call("ls")), say("It is empty.")]) as running, client(running) as ours:
        answer = ours.chat.completions.create(model=AGENT, messages=[HEY])
        (choice,) = answer.choices
        assert (choice.message.content, choice.finish_reason) == ("It is empty.", "stop")
        assert choice.message.reasoning_content.startswith("Hm.")  # type: ignore[attr-defined]
        assert "ls(" in choice.message.reasoning_content  # type: ignore[attr-defined]
        assert answer.model == AGENT
        assert answer.usage is not None
        assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens > 0


def test_a_stream_tells_what_is_said_and_done() -> None:
    text = "It is empty, as far as I can see. " * 20
    script = [think("Hm.", call("ls")), slow(say(text), each=0.01)]
    with shared(script) as running, client(running) as ours:
        stream = ours.chat.completions.create(
            model=AGENT, messages=[HEY], stream=True, stream_options={"include_usage": True}
        )
        chunks = list(stream)
        deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
        content = [delta.content for delta in deltas if delta.content]
        thought = "".join(getattr(delta, "reasoning_content", "") or "" for delta in deltas)
        assert "".join(content) == text
        assert len(content) > 3
        assert thought.startswith("Hm.")
        assert "ls(" in thought
        assert "→ ok" in thought
        assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
        assert chunks[-1].usage is not None
        assert chunks[-1].usage.completion_tokens > 0


def test_a_session_goes_on_with_the_last_message_only() -> None:
    with shared([say("Hello."), say("Blue."), say("Other.")]) as running, client(running) as ours:
        first = ours.chat.completions.with_raw_response.create(model=AGENT, messages=[HEY])
        session = first.headers["x-session"]
        talk: Any = [HEY, {"role": "assistant", "content": "Hello."}, {"role": "user", "content": "which colour?"}]
        again = ours.chat.completions.with_raw_response.create(
            model=AGENT, messages=talk, extra_headers={"X-Session": session}
        )
        assert again.headers["x-session"] == session
        assert again.parse().choices[0].message.content == "Blue."
        assert said(running) == "which colour?"
        named = ours.chat.completions.with_raw_response.create(
            model=AGENT, messages=[HEY], extra_headers={"X-Session": "my-own"}
        )
        assert named.headers["x-session"] == "my-own"
        assert running.ask("GET", "/api/sessions/my-own/history").status == 200


def test_a_session_that_begins_is_given_the_whole_conversation() -> None:
    talk: Any = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "I like blue."}]},
        {"role": "assistant", "content": "Noted."},
        {"role": "user", "content": "Which colour do I like?"},
    ]
    with shared([say("Blue.")]) as running, client(running) as ours:
        answer = ours.chat.completions.with_raw_response.create(model=AGENT, messages=talk)
        told = said(running)
        assert [part in told for part in ("Be brief.", "I like blue.", "Noted.", "Which colour do I like?")] == [
            True
        ] * 4
        (row,) = running.ask("GET", "/api/sessions").json["sessions"]
        assert row["title"] == "Which colour do I like?"
        assert answer.headers["x-session"] == row["id"]


def test_an_agent_runs_on_the_model_that_its_name_says() -> None:
    with shared([say("Hi.")]) as running, client(running) as ours:
        ours.chat.completions.create(model=f"{AGENT}:test-model", messages=[HEY])
        asked = [request for request in running.model.requests if request.method == "POST"]
        assert asked[-1].body["model"] == "test-model"


def test_images_come_along_as_data() -> None:
    url = f"data:image/png;base64,{base64.b64encode(png(4, 4)).decode()}"
    parts: Any = [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": url}}]
    with shared([say("Black.")]) as running, client(running) as ours:
        ours.chat.completions.create(model=AGENT, messages=[{"role": "user", "content": parts}])
        (received,) = [event for event in running.logs() if event["type"] == "input.received"]
        assert received["message"]["parts"][1] == {
            "type": "image",
            "media_type": "image/png",
            "data": base64.b64encode(png(4, 4)).decode(),
        }


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with gateway(tmp_path_factory.mktemp("facade"), [say("never asked")]) as started:
        yield started


def image(url: str) -> list[dict]:
    return [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]


BOMB = base64.b64encode(gif(65_535, 65_535)).decode()


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"messages": [HEY], "tools": [{"type": "function", "function": {"name": "f"}}]}, "unsupported"),
        ({"messages": [HEY], "tool_choice": "required"}, "unsupported"),
        ({"messages": [HEY], "response_format": {"type": "json_object"}}, "unsupported"),
        ({"messages": [HEY], "n": 2}, "unsupported"),
        ({"messages": [HEY], "logprobs": True}, "unsupported"),
        ({"messages": []}, "invalid"),
        ({}, "invalid"),
        ({"messages": "x"}, "invalid"),
        ({"messages": [{"role": "user"}]}, "invalid"),
        ({"messages": [{"role": "user", "content": 5}]}, "invalid"),
        ({"messages": [{"role": "user", "content": [5]}]}, "invalid"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, "invalid"),
        ({"messages": [{"role": "wizard", "content": "x"}, HEY]}, "invalid"),
        ({"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]}, "unsupported"),
        ({"messages": image("https://example.com/a.png")}, "no_data_url"),
        ({"messages": image("data:image/png;base64,!!")}, "invalid"),
        ({"messages": image("data:image/png;base64,aGVsbG8=")}, "no_image"),
        ({"messages": image(f"data:image/gif;base64,{BOMB}")}, "too_many_pixels"),
        ({"messages": [HEY], "model": "gpt-5"}, "model_not_found"),
        ({"messages": [HEY], "model": f"{AGENT}:nope"}, "model_not_found"),
    ],
)
def test_what_cannot_be_honoured_is_refused_in_openais_shape(running: Running, body: dict, code: str) -> None:
    answer = running.ask("POST", "/v1/chat/completions", {"model": AGENT, **body})
    assert 400 <= answer.status < 500, answer.body
    error = answer.json["error"]
    assert (error["code"], error["type"]) == (code, "invalid_request_error")
    assert error["message"]
    assert running.logs() == []


@pytest.mark.parametrize("headers", [{"X-Session": "../x"}, {"X-Approval-Timeout": "soon"}, {"X-Session": "a b"}])
def test_a_header_that_is_wrong_is_refused(running: Running, headers: dict[str, str]) -> None:
    answer = running.ask("POST", "/v1/chat/completions", {"model": AGENT, "messages": [HEY]}, headers)
    assert (answer.status, answer.code) == (400, "invalid")


def test_a_wrong_key_is_told_as_the_client_knows_it(running: Running) -> None:
    with openai.OpenAI(base_url=f"{running.url}/v1", api_key="wrong", max_retries=0) as other:
        with pytest.raises(openai.AuthenticationError):
            other.models.list()
        with pytest.raises(openai.NotFoundError), client(running) as ours:
            ours.chat.completions.create(model="gpt-5", messages=[HEY])  # type: ignore[list-item]


def test_a_turn_that_fails_is_an_error_in_both_ways() -> None:
    with shared([status(401)]) as running, client(running) as ours:
        with pytest.raises(openai.APIStatusError) as failed:
            ours.chat.completions.create(model=AGENT, messages=[HEY])
        assert failed.value.status_code == 502
        with pytest.raises(openai.APIError) as broken:
            list(ours.chat.completions.create(model=AGENT, messages=[HEY], stream=True))
        assert broken.value.message


def test_an_approval_that_nobody_gives_in_time_is_denied() -> None:
    with shared([call("shell", command="touch x"), say("I may not.")]) as running, client(running) as ours:
        stream = ours.chat.completions.create(
            model=AGENT, messages=[HEY], stream=True, extra_headers={"X-Approval-Timeout": "0.3"}
        )
        deltas = [chunk.choices[0].delta for chunk in stream if chunk.choices]
        assert "".join(delta.content or "" for delta in deltas) == "I may not."
        assert "waits for approval" in "".join(getattr(delta, "reasoning_content", "") or "" for delta in deltas)
        assert not (running.workspace / "x").exists()


def finished(running: Running) -> dict:
    until(lambda: running.recorded("turn.finished"))
    return running.recorded("turn.finished")[0]


def leave(running: Running, *, stream: bool, headers: dict[str, str]) -> None:
    """Ask, and go away while the turn runs."""
    body = {"model": AGENT, "messages": [HEY], "stream": stream}
    running.leave("/v1/chat/completions", body, headers, once=lambda: running.recorded("step.started"))


@pytest.mark.parametrize("stream", [True, False])
def test_who_goes_away_ends_nothing(stream: bool) -> None:
    with shared([slow(say("Finished."), first=1.0)]) as running:
        leave(running, stream=stream, headers={})
        assert (finished(running)["outcome"], finished(running)["answer"]) == ("done", "Finished.")


@pytest.mark.parametrize("stream", [True, False])
def test_who_says_so_interrupts_by_going_away(stream: bool) -> None:
    with shared([hang(say("never ending"), chunks=1)]) as running:
        leave(running, stream=stream, headers={"X-Session-Interrupt": "1"})
        assert finished(running)["outcome"] == "interrupted"


def test_pydantic_ai_drives_the_agent() -> None:
    with shared([call("ls"), say("Two files."), say("Bye.")]) as running:
        token = running.headers["Authorization"].removeprefix("Bearer ")
        provider = OpenAIProvider(base_url=f"{running.url}/v1", api_key=token)
        agent = Agent(OpenAIChatModel(AGENT, provider=provider), instructions="Be brief.")

        async def talk() -> tuple[str, str]:
            try:
                first = await agent.run("How many files?")
                second = await agent.run("And now say bye.", message_history=first.all_messages())
                return first.output, second.output
            finally:
                await provider.client.close()

        assert anyio.run(talk) == ("Two files.", "Bye.")
        assert said(running) == "And now say bye."  # it goes on in the session that knows the rest
        assert "Two files." in str(running.model.requests[-1].body["messages"])
