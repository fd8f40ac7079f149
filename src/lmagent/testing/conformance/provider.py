"""The suite of the Provider port."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractContextManager, aclosing, asynccontextmanager
from typing import Any, cast

import anyio
import anyio.to_thread
import pytest

from lmagent.core import errors
from lmagent.core.messages import Message, Text, Thinking, ToolCall, ToolResult, user
from lmagent.core.model import ModelEvent, ModelReply, ModelRequest, TextChunk, ThinkingChunk, ToolSpec
from lmagent.core.ports import Provider
from lmagent.testing import faults
from lmagent.testing.conformance.asynchronous import Asynchronous
from lmagent.testing.script import Behaviour, Counts, ScriptedCall, call_raw, calls, cut, hang, reply, say, think, tool

READ = ToolSpec("read", "Read a file.", {"type": "object", "properties": {"path": {"type": "string"}}})


def request(*messages: Message, **fields: Any) -> ModelRequest:
    """Return a model call with one tool."""
    return ModelRequest("test-model", "Be brief.", (READ,), list(messages or (user("hello"),)), **fields)


def _last(events: Sequence[ModelEvent]) -> ModelReply:
    assert isinstance(events[-1], ModelReply)
    return events[-1]


async def _text(provider: Provider) -> str:
    """Return the text of one call."""
    return _last([event async for event in provider.stream(request())]).message.text


class ProviderConformance(Asynchronous):
    """Subclass it and override `make`. The provider under test should make no retries, or make them without delay."""

    def make(self, replies: Sequence[Behaviour]) -> AbstractContextManager[Provider]:
        """Return a provider whose model gives these replies, one a request."""
        raise AssertionError("override make")

    @asynccontextmanager
    async def _provider(self, *replies: Behaviour) -> AsyncGenerator[Provider]:
        made = self.make(replies)
        provider = await anyio.to_thread.run_sync(made.__enter__)  # it may run an event loop of its own
        try:
            with anyio.fail_after(10):
                yield provider
        finally:
            await provider.aclose()
            made.__exit__(None, None, None)

    async def _stream(self, behaviour: Behaviour, wanted: ModelRequest | None = None) -> list[ModelEvent]:
        """Return all events of one call, or raise its error."""
        async with self._provider(*[behaviour] * 4) as provider:
            return [event async for event in provider.stream(wanted or request())]

    async def _reply(self, behaviour: Behaviour) -> ModelReply:
        return _last(await self._stream(behaviour))

    # --- replies ----------------------------------------------------------------------------------------------------

    async def test_the_pieces_of_an_answer_join_to_the_text_of_the_reply(self) -> None:
        text = "Grüße, 世界! 🙂 " * 5
        events = await self._stream(say(text, chunk=3))
        last = _last(events)
        assert sum(isinstance(event, ModelReply) for event in events) == 1
        assert "".join(event.text for event in events if isinstance(event, TextChunk)) == text
        assert last.message == Message("assistant", (Text(text),))
        assert last.finish_reason == "stop"

    async def test_thought_comes_before_the_answer_and_apart_from_it(self) -> None:
        events = await self._stream(think("Let me see.", say("Four.")))
        last = _last(events)
        assert last.message.parts == (Thinking("Let me see."), Text("Four."))
        assert "".join(event.text for event in events if isinstance(event, ThinkingChunk)) == "Let me see."

    async def test_calls_keep_their_order_and_their_arguments_to_the_letter(self) -> None:
        wanted = [
            ScriptedCall("read", '{ "path":  "a\\u00e9.txt" }', "one"),
            tool("ls", path="b"),
            ScriptedCall("ls", "{}", "three"),
        ]
        last = await self._reply(calls(*wanted, text="Looking."))
        assert [(call.name, call.arguments) for call in last.message.tool_calls] == [
            (call.name, call.arguments) for call in wanted
        ]
        ids = [call.id for call in last.message.tool_calls]
        assert ids[0] == "one"
        assert ids[2] == "three"
        assert all(ids)
        assert len(set(ids)) == 3
        assert last.message.text == "Looking."
        assert last.finish_reason == "tool_calls"

    async def test_damaged_arguments_are_passed_on_as_they_came(self) -> None:
        last = await self._reply(call_raw("read", '{"path": "a.txt'))
        assert [call.arguments for call in last.message.tool_calls] == ['{"path": "a.txt']

    async def test_damage_that_is_plainly_complete_is_repaired(self) -> None:
        last = await self._reply(call_raw("read", "{'path': \"a.txt\",}"))
        assert [json.loads(call.arguments) for call in last.message.tool_calls] == [{"path": "a.txt"}]

    async def test_a_call_in_a_reply_that_hit_its_length_is_marked_as_cut(self) -> None:
        last = await self._reply(reply(calls=[ScriptedCall("read", '{"path": "a.t', "c1")], finish="length"))
        assert last.finish_reason == "length"
        assert last.truncated_calls == {"c1"}

    async def test_usage_is_what_the_server_counted(self) -> None:
        usage = (await self._reply(reply(text="hi", usage=Counts(prompt=1200, completion=34, cached=1000)))).usage
        assert (usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens) == (1200, 34, 1000)
        assert not usage.estimated

    async def test_a_whole_conversation_can_be_sent(self) -> None:
        history = [
            user("Read a.txt"),
            Message("assistant", (Text("Yes."), ToolCall("c1", "read", '{"path":"a.txt"}'))),
            Message("tool", (ToolResult("c1", "ok", "content"),)),
            Message("assistant", (Text("It says content."),)),
            user("Thanks."),
        ]
        events = await self._stream(say("You are welcome."), request(*history))
        assert isinstance(events[-1], ModelReply)

    # --- failures ---------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize(
        ("behaviour", "kind"),
        [
            (faults.bad_key(), errors.AuthError),
            (faults.unknown_model(), errors.ModelNotFound),
            (faults.server_error(500), errors.ServerFailure),
            (faults.rate_limited("0"), errors.ServerFailure),
            (faults.html_page(), errors.BadReply),
        ],
        ids=["401", "404", "500", "429", "html"],
    )
    async def test_each_failure_has_its_own_error(self, behaviour: Behaviour, kind: type[errors.ProviderError]) -> None:
        with pytest.raises(kind):
            await self._stream(behaviour)

    @pytest.mark.parametrize("server", list(faults.OVERFLOWS))
    async def test_an_overflow_is_recognised_and_tells_the_window(self, server: str) -> None:
        with pytest.raises(errors.ContextOverflow) as caught:
            await self._stream(faults.OVERFLOWS[server](9000, 4096))
        assert caught.value.window == 4096

    async def test_a_stream_that_breaks_off_is_an_error_and_never_a_reply(self) -> None:
        with pytest.raises(errors.ProviderError) as caught:
            await self._stream(cut(say("a long answer that ends too early", chunk=4), chunks=3))
        assert caught.value.partial

    # --- use --------------------------------------------------------------------------------------------------------

    async def test_calls_follow_one_another_and_run_at_the_same_time(self) -> None:
        texts: list[str] = []

        async def one(provider: Provider) -> None:
            texts.append(await _text(provider))

        async with self._provider(*map(say, ("one", "two", "three", "four"))) as provider:
            await one(provider)
            async with anyio.create_task_group() as tasks:
                for _ in range(3):
                    tasks.start_soon(one, provider)
        assert texts[0] == "one"
        assert sorted(texts) == ["four", "one", "three", "two"]

    async def test_a_call_can_be_cancelled_while_the_model_is_silent(self) -> None:
        async with self._provider(hang(say("slow"), chunks=1), say("second")) as provider:
            with anyio.move_on_after(0.2) as scope:
                await _text(provider)
            assert scope.cancelled_caught
            assert await _text(provider) == "second"

    async def test_a_stream_can_be_left_before_its_end(self) -> None:
        async with self._provider(say("many words " * 50), say("second")) as provider:
            async with aclosing(cast("AsyncGenerator[ModelEvent]", provider.stream(request()))) as events:
                await anext(events)
            assert await _text(provider) == "second"
