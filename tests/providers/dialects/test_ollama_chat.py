"""Ollama's native route passes the suite of the Provider port, keeps its window and loses no front of a prompt."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import anyio
import pytest
from dialect_kit import READ, answering, ask, request
from hypothesis import given, settings
from hypothesis import strategies as st
from testkit.servers import OllamaServer
from testkit.servers.base import Lies

from lmagent.core.errors import BadReply, ContextOverflow, ProviderError, ServerFailure
from lmagent.core.messages import Image, Message, Text, Thinking, ToolCall, ToolResult, assistant, user
from lmagent.core.model import ModelEvent, ModelReply, ModelRequest, TextChunk, ThinkingChunk
from lmagent.core.ports import Provider
from lmagent.providers import jsontext
from lmagent.providers.dialects.base import ModelFacts
from lmagent.providers.dialects.ollama import choose_window
from lmagent.providers.dialects.ollama_chat import NativeEncoder, OllamaChat
from lmagent.providers.openai_chat import OpenAIChat
from lmagent.providers.retry import RetryPolicy
from lmagent.providers.transport import HttpTransport
from lmagent.testing import (
    call_raw,
    calls,
    cut,
    error_in_stream,
    faults,
    hang,
    quirks,
    raw,
    reply,
    say,
    status,
    think,
    tool,
)
from lmagent.testing.conformance import ProviderConformance
from lmagent.testing.fakes import FakeClock
from lmagent.testing.loopback import Pause, Response
from lmagent.testing.script import Behaviour, Counts, ScriptedCall

FACTS = ModelFacts(id="qwen3:8b", maximum=40_960, thinking=True)
LONG = user("line of text\n" * 3000)  # about 9,750 tokens as the fake counts them


def provider(server: OllamaServer, window: int = 32_768, facts: ModelFacts = FACTS, **more: Any) -> OllamaChat:
    clock = FakeClock(auto=True)
    transport = HttpTransport({})
    retries = RetryPolicy(tries=1)
    return OllamaChat(
        server.base_url, facts=facts, window=window, transport=transport, clock=clock, retries=retries, **more
    )


def stream(client: Provider, wanted: ModelRequest) -> list[ModelEvent]:
    async def main() -> list[ModelEvent]:
        try:
            with anyio.fail_after(10):
                return [event async for event in client.stream(wanted)]
        finally:
            await client.aclose()

    return anyio.run(main)


def answer(behaviour: Behaviour, wanted: ModelRequest | None = None, **settings: Any) -> ModelReply:
    with OllamaServer([behaviour], **settings) as server:
        last = stream(provider(server), wanted or request(model="qwen3:8b"))[-1]
    assert isinstance(last, ModelReply)
    return last


class TestOllamaChat(ProviderConformance):
    @contextmanager
    def make(self, replies: Sequence[Behaviour]) -> Iterator[Provider]:
        with OllamaServer(replies) as server:
            yield provider(server)

    async def test_calls_keep_their_order_and_their_arguments_to_the_letter(self) -> None:
        """Arguments are objects on this route: their white space is not kept, their order and values are."""
        wanted = [
            ScriptedCall("read", '{ "path":  "a\\u00e9.txt" }', "one"),
            tool("ls", path="b"),
            ScriptedCall("ls", "{}", "three"),
        ]
        last = await self._reply(calls(*wanted, text="Looking."))
        given = [(made.name, json.loads(made.arguments)) for made in last.message.tool_calls]
        assert given == [("read", {"path": "aé.txt"}), ("ls", {"path": "b"}), ("ls", {})]
        ids = [made.id for made in last.message.tool_calls]
        assert (ids[0], ids[2], len(set(ids)), all(ids)) == ("one", "three", 3, True)
        assert (last.message.text, last.finish_reason) == ("Looking.", "tool_calls")

    async def test_damaged_arguments_are_passed_on_as_they_came(self) -> None:
        """Ollama parses calls itself: one that breaks off comes as text, and must not run."""
        last = await self._reply(call_raw("read", '{"path": "a.txt"'))
        (call,) = last.message.tool_calls
        assert call.name == "read"
        assert last.truncated_calls == {call.id}

    async def test_damage_that_is_plainly_complete_is_repaired(self) -> None:
        """Ollama passes on none: what it cannot read comes as text, and text alone is no call."""
        last = await self._reply(call_raw("read", "{'path': \"a.txt\",}"))
        assert [call.name for call in last.message.tool_calls if call.id not in last.truncated_calls] == []

    async def test_a_call_in_a_reply_that_hit_its_length_is_marked_as_cut(self) -> None:
        """A whole call before the end of the length is not to be trusted either."""
        last = await self._reply(reply(calls=[ScriptedCall("read", '{"path": "a.txt"}', "c1")], finish="length"))
        assert last.finish_reason == "length"
        assert last.truncated_calls == {"c1"}

    async def test_usage_is_what_the_server_counted(self) -> None:
        """Ollama does not say how much came from its cache."""
        usage = (await self._reply(reply(text="hi", usage=Counts(prompt=1200, completion=34)))).usage
        assert (usage.prompt_tokens, usage.completion_tokens, usage.estimated) == (1200, 34, False)


# --- the window -----------------------------------------------------------------------------------------------------


def test_the_common_route_loses_the_front_in_silence_and_the_native_one_does_not() -> None:
    wanted = request(model="qwen3:8b", messages=[LONG])
    with OllamaServer([say("How can I help?")]) as server:
        common = OpenAIChat(server.base_url, transport=HttpTransport({}), clock=FakeClock(auto=True))
        last = stream(common, wanted)[-1]
        assert isinstance(last, ModelReply)
        assert last.usage.prompt_tokens == 4096, "behind a 200: only the count betrays it"
    with OllamaServer([say("done")]) as server:
        last = stream(provider(server), wanted)[-1]
        assert isinstance(last, ModelReply)
        assert last.usage.prompt_tokens > 9000
        assert server.loaded_window == 32_768


def test_a_prompt_that_does_not_fit_even_so_is_refused_with_the_figures() -> None:
    with OllamaServer([say("never")]) as server, pytest.raises(ContextOverflow) as caught:
        stream(provider(server, window=4096), request(model="qwen3:8b", messages=[LONG]))
    assert caught.value.window == 4096


def test_the_refusal_without_figures_names_the_window_that_was_asked_for() -> None:
    said = "the prompt is longer than the context length currently available to the model; shorten the prompt"
    with OllamaServer([status(400, {"error": said})]) as server, pytest.raises(ContextOverflow) as caught:
        stream(provider(server, window=16_384), request(model="qwen3:8b"))
    assert caught.value.window == 16_384


def test_one_window_is_kept_for_a_whole_session() -> None:
    with OllamaServer([say("one"), say("two"), say("three")]) as server:
        for text in ("a", "b", "c"):
            stream(provider(server), request(text, model="qwen3:8b"))
        assert server.reloads == 0
        assert {received.fields["options"]["num_ctx"] for received in server.chats} == {32_768}
        assert ask(server.base_url, "qwen3:8b").model.window == 32_768  # pyright: ignore[reportOptionalMemberAccess]


def test_a_single_call_on_the_common_route_throws_the_model_out_of_memory() -> None:
    with OllamaServer([say("one"), say("two"), say("three")]) as server:
        stream(provider(server), request(model="qwen3:8b"))
        stream(OpenAIChat(server.base_url, transport=HttpTransport({}), clock=FakeClock(auto=True)), request())
        stream(provider(server), request(model="qwen3:8b"))
        assert server.reloads == 2


@pytest.mark.parametrize(
    ("facts", "wanted", "chosen"),
    [
        (None, 16_384, 16_384),
        (ModelFacts(id="m", maximum=8192), 16_384, 8192),
        (ModelFacts(id="m", maximum=40_960, loaded=True, served=32_768), 16_384, 32_768),
        (ModelFacts(id="m", maximum=40_960, loaded=True, served=4096), 16_384, 16_384),
        (ModelFacts(id="m", maximum=40_960), 16_384, 16_384),
    ],
)
def test_a_loaded_window_that_is_large_enough_is_kept(facts: ModelFacts | None, wanted: int, chosen: int) -> None:
    assert choose_window(facts, wanted) == chosen


def test_an_older_server_cuts_all_the_same_and_the_count_shows_it() -> None:
    with OllamaServer([say("hm")], refuses=False) as server:
        last = stream(provider(server, window=4096), request(model="qwen3:8b", messages=[LONG]))[-1]
    assert isinstance(last, ModelReply)
    assert last.usage.prompt_tokens == 4096
    assert not last.usage.estimated


# --- the request ----------------------------------------------------------------------------------------------------

TWO_CALLS = (ToolCall("c1", "read", '{"path":"a"}'), ToolCall("c2", "ls", "{"))
HISTORY = [
    Message("user", (Text("Look."), Image("image/png", "iVBORw0KGgo="))),
    Message("assistant", (Thinking("hm"), Text("Yes."), *TWO_CALLS)),
    Message("tool", (ToolResult("c1", "ok", "content"),)),
    Message("tool", (ToolResult("c2", "error", "damaged"),)),
]


def body(wanted: ModelRequest) -> dict[str, Any]:
    return json.loads(NativeEncoder(8192).encode(wanted))


def test_messages_take_the_native_form() -> None:
    sent = body(request(messages=HISTORY))["messages"]
    assert sent[0] == {"role": "system", "content": "s"}
    assert sent[1] == {"role": "user", "content": "Look.", "images": ["iVBORw0KGgo="]}
    assert sent[2]["tool_calls"] == [
        {"id": "c1", "function": {"name": "read", "arguments": {"path": "a"}}},
        {"id": "c2", "function": {"name": "ls", "arguments": {"unreadable": "see the result"}}},
    ]
    assert "thinking" not in sent[2]
    assert sent[3] == {"role": "tool", "content": "content", "tool_name": "read", "tool_call_id": "c1"}
    assert body(request(messages=HISTORY, keep_thinking=True))["messages"][2]["thinking"] == "hm"


def test_settings_take_the_native_form() -> None:
    sent = body(request(temperature=0.2, max_tokens=100, response_schema={"type": "object"}))
    assert sent["options"] == {"num_ctx": 8192, "temperature": 0.2, "num_predict": 100}
    assert sent["format"] == {"type": "object"}
    assert (sent["truncate"], sent["shift"], sent["stream"]) == (False, False, True)
    assert sent["tools"][0]["function"]["parameters"] == READ.parameters


def test_an_earlier_request_is_a_byte_exact_beginning_of_a_later_one() -> None:
    encoder = NativeEncoder(8192)
    messages = [user("one")]
    previous = encoder.encode(request(messages=list(messages)))
    for turn in range(5):
        messages += [assistant(f"answer {turn}"), user(f"question {turn}")]
        current = encoder.encode(request(messages=list(messages)))
        assert current.startswith(previous.removesuffix(b"]}"))
        previous = current
    fresh = NativeEncoder(8192).encode(request(messages=list(messages)))
    assert current == fresh, "what was kept is what would be encoded anew"


def test_side_conversations_do_not_disturb_what_was_encoded() -> None:
    encoder = NativeEncoder(8192)
    main = [*HISTORY]
    first = encoder.encode(request(messages=main))
    for number in range(6):
        encoder.encode(request(messages=[user(f"side {number}")]))
    assert encoder.encode(request(messages=main)) == first
    assert encoder.call_ids(request(messages=main)) == {"c1", "c2"}
    branch = [*main[:1], assistant("another way")]
    assert json.loads(encoder.encode(request(messages=branch)))["messages"][-1]["content"] == "another way"


def test_a_constrained_call_is_asked_for_as_a_format_and_read_as_a_call() -> None:
    wanted = request(model="qwen3:8b", constrain=True)
    assert body(wanted)["format"]["anyOf"][0]["properties"]["tool"] == {"const": "read"}
    with OllamaServer([say('{"tool": "read", "arguments": {"path": "a"}}')]) as server:
        events = stream(provider(server), wanted)
    last = events[-1]
    assert isinstance(last, ModelReply)
    assert not any(isinstance(event, TextChunk) for event in events), "nobody wants to read JSON"
    assert [(made.name, made.arguments) for made in last.message.tool_calls] == [("read", '{"path":"a"}')]


# --- the reply ------------------------------------------------------------------------------------------------------


def test_thought_text_and_calls_are_told_apart() -> None:
    last = answer(think("Let me see.", calls(tool("read", path="ä.txt"), text="Looking.")))
    assert [type(part).__name__ for part in last.message.parts] == ["Thinking", "Text", "ToolCall"]
    assert last.message.tool_calls[0].arguments == '{"path":"ä.txt"}'
    assert last.finish_reason == "tool_calls"


def test_calls_that_are_all_numbered_zero_stay_apart() -> None:
    last = answer(calls(tool("read", path="a"), tool("read", path="b"), tool("read", path="a")))
    assert [json.loads(made.arguments)["path"] for made in last.message.tool_calls] == ["a", "b", "a"]


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 40))
def test_a_reply_reads_the_same_wherever_its_bytes_are_cut(size: int) -> None:
    from dataclasses import replace

    plain = think("Überlegung", calls(tool("read", path="日本"), text="Grüße, 世界"))
    last = answer(replace(plain, style=replace(plain.style, split=size)))
    assert last.message.text == "Grüße, 世界"
    assert json.loads(last.message.tool_calls[0].arguments) == {"path": "日本"}


def test_a_reply_that_hit_its_length_says_so() -> None:
    assert answer(reply(text="and so", finish="length")).finish_reason == "length"


def test_thought_is_shown_while_it_comes() -> None:
    with OllamaServer([think("one two three four five six", say("seven"))]) as server:
        events = stream(provider(server), request(model="qwen3:8b"))
    assert "".join(event.text for event in events if isinstance(event, ThinkingChunk)) == "one two three four five six"


@pytest.mark.parametrize("lie", ["zero", "missing"])
def test_usage_that_is_not_sent_is_estimated_and_says_so(lie: Any) -> None:
    assert answer(say("hi"), lies=Lies(usage=lie)).usage.estimated


@pytest.mark.parametrize(
    ("behaviour", "kind"),
    [
        (cut(say("a long answer that ends too early", chunk=4), chunks=3), ProviderError),
        (cut(say("a long answer that ends too early", chunk=4), bytes=150), ProviderError),
        (quirks.no_finish_reason(say("no end")), ServerFailure),
        (error_in_stream("llama runner process has terminated", say("par")), ServerFailure),
        (raw([b'{"message":{"content":"a"}}\n{not json\n'], content_type="application/x-ndjson"), BadReply),
        (raw([b'{"message":{"content":"a"}}\n[1]\n'], content_type="application/x-ndjson"), ProviderError),
        (raw([b"data: {}\n\n"]), BadReply),
        (raw([], framing="length"), BadReply),
        (raw([b"\n\n"]), BadReply),
        (faults.empty_reply(), None),
    ],
)
def test_a_reply_is_whole_or_an_error(behaviour: Behaviour, kind: type[Exception] | None) -> None:
    if kind is None:
        assert answer(behaviour).message.parts == ()
        return
    with pytest.raises(kind):
        answer(behaviour)


def test_a_connection_that_stays_open_after_the_end_holds_nobody_up() -> None:
    assert answer(hang(say("hi"), chunks=2)).message.text == "hi"


def test_blank_lines_after_the_end_hold_nobody_up_however_often_they_come() -> None:
    line = jsontext.dumps({"model": "m", "message": {"content": "hi"}, "done": True, "done_reason": "stop"}) + b"\n"
    blank = [step for _ in range(200) for step in (Pause(0.1), b"\n")]
    with answering({"POST /api/chat": Response((line, *blank), framing="chunked")}) as server:
        begun = time.monotonic()
        client = OllamaChat(
            server.url, facts=FACTS, window=8192, transport=HttpTransport({}), clock=FakeClock(auto=True)
        )
        last = stream(client, request(model="m"))[-1]
        assert time.monotonic() - begun < 10
    assert isinstance(last, ModelReply)
    assert last.message.text == "hi"


def test_what_is_no_json_is_told_with_the_server_and_what_to_look_at() -> None:
    with pytest.raises(BadReply, match=r"the stream of the model server at 127\.0\.0\.1:\d+ holds") as caught:
        answer(raw([b'{"message":{"content":"a"}}\n{not json\n'], content_type="application/x-ndjson"))
    assert caught.value.fix


def test_a_last_line_without_an_end_counts_if_it_is_whole() -> None:
    line = jsontext.dumps({"model": "m", "message": {"content": "hi"}, "done": True, "done_reason": "stop"})
    assert answer(raw([line], content_type="application/x-ndjson")).message.text == "hi"
    with pytest.raises(ProviderError):
        answer(raw([line[:-3]], content_type="application/x-ndjson"))


def test_loading_a_model_without_saying_anything_is_an_empty_reply() -> None:
    line = {"model": "m", "message": {"role": "assistant", "content": ""}, "done": True, "done_reason": "load"}
    assert answer(raw([jsontext.dumps(line) + b"\n"])).finish_reason == "stop"
