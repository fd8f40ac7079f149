"""The suite of the Provider port."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractContextManager, aclosing
from typing import Any, cast

import anyio
import pytest

from lmagent.core import errors
from lmagent.core.messages import Message, Text, Thinking, ToolCall, ToolResult, user
from lmagent.core.model import ModelEvent, ModelReply, ModelRequest, TextChunk, ThinkingChunk, ToolSpec
from lmagent.core.ports import Provider
from lmagent.testing import faults
from lmagent.testing.script import Behaviour, Counts, ScriptedCall, call_raw, calls, cut, hang, reply, say, think, tool

READ = ToolSpec("read", "Read a file.", {"type": "object", "properties": {"path": {"type": "string"}}})


def request(*messages: Message, **fields: Any) -> ModelRequest:
    """Return a model call with one tool."""
    return ModelRequest("test-model", "Be brief.", (READ,), list(messages or (user("hello"),)), **fields)


class ProviderConformance:
    """Subclass it and override `make`. The provider under test should make no retries, or make them without delay."""

    def make(self, replies: Sequence[Behaviour]) -> AbstractContextManager[Provider]:
        """Return a provider whose model gives these replies, one a request."""
        raise AssertionError("override make")

    def _stream(self, behaviour: Behaviour, wanted: ModelRequest | None = None) -> list[ModelEvent]:
        """Return all events of one call, or raise its error."""

        async def main(provider: Provider) -> list[ModelEvent]:
            try:
                with anyio.fail_after(5):
                    return [event async for event in provider.stream(wanted or request())]
            finally:
                await provider.aclose()

        with self.make([behaviour] * 4) as provider:
            return anyio.run(main, provider)

    def _reply(self, behaviour: Behaviour) -> ModelReply:
        last = self._stream(behaviour)[-1]
        assert isinstance(last, ModelReply)
        return last

    # --- replies ----------------------------------------------------------------------------------------------------

    def test_the_pieces_of_an_answer_join_to_the_text_of_the_reply(self) -> None:
        """The reply is the last event and there is only one."""
        text = "Grüße, 世界! 🙂 " * 5
        events = self._stream(say(text, chunk=3))
        last = events[-1]
        assert isinstance(last, ModelReply)
        assert sum(isinstance(event, ModelReply) for event in events) == 1
        assert "".join(event.text for event in events if isinstance(event, TextChunk)) == text
        assert last.message == Message("assistant", (Text(text),))
        assert last.finish_reason == "stop"

    def test_thought_comes_before_the_answer_and_apart_from_it(self) -> None:
        """Pieces and parts alike."""
        events = self._stream(think("Let me see.", say("Four.")))
        last = events[-1]
        assert isinstance(last, ModelReply)
        assert last.message.parts == (Thinking("Let me see."), Text("Four."))
        assert "".join(event.text for event in events if isinstance(event, ThinkingChunk)) == "Let me see."

    def test_calls_keep_their_order_and_their_arguments_to_the_letter(self) -> None:
        """White space in the arguments included."""
        wanted = [
            ScriptedCall("read", '{ "path":  "a\\u00e9.txt" }', "one"),
            tool("ls", path="b"),
            ScriptedCall("ls", "{}", "three"),
        ]
        last = self._reply(calls(*wanted, text="Looking."))
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

    def test_damaged_arguments_are_passed_on_as_they_came(self) -> None:
        """The engine alone decides about them."""
        last = self._reply(call_raw("read", '{"path": "a.txt'))
        assert [call.arguments for call in last.message.tool_calls] == ['{"path": "a.txt']

    def test_damage_that_is_plainly_complete_is_repaired(self) -> None:
        """As in calls within text."""
        last = self._reply(call_raw("read", "{'path': \"a.txt\",}"))
        assert [json.loads(call.arguments) for call in last.message.tool_calls] == [{"path": "a.txt"}]

    def test_a_call_in_a_reply_that_hit_its_length_is_marked_as_cut(self) -> None:
        """It must not run."""
        last = self._reply(reply(calls=[ScriptedCall("read", '{"path": "a.t', "c1")], finish="length"))
        assert last.finish_reason == "length"
        assert last.truncated_calls == {"c1"}

    def test_usage_is_what_the_server_counted(self) -> None:
        """Cached tokens included."""
        usage = self._reply(reply(text="hi", usage=Counts(prompt=1200, completion=34, cached=1000))).usage
        assert (usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens) == (1200, 34, 1000)
        assert not usage.estimated

    def test_a_whole_conversation_can_be_sent(self) -> None:
        """Calls, results and several turns."""
        history = [
            user("Read a.txt"),
            Message("assistant", (Text("Yes."), ToolCall("c1", "read", '{"path":"a.txt"}'))),
            Message("tool", (ToolResult("c1", "ok", "content"),)),
            Message("assistant", (Text("It says content."),)),
            user("Thanks."),
        ]
        events = self._stream(say("You are welcome."), request(*history))
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
    def test_each_failure_has_its_own_error(self, behaviour: Behaviour, kind: type[errors.ProviderError]) -> None:
        """Typed, so that the engine can act on it."""
        with pytest.raises(kind):
            self._stream(behaviour)

    @pytest.mark.parametrize("server", list(faults.OVERFLOWS))
    def test_an_overflow_is_recognised_and_tells_the_window(self, server: str) -> None:
        """In every server's words."""
        with pytest.raises(errors.ContextOverflow) as caught:
            self._stream(faults.OVERFLOWS[server](9000, 4096))
        assert caught.value.window == 4096

    def test_a_stream_that_breaks_off_is_an_error_and_never_a_reply(self) -> None:
        """The shown text stays; the error says so."""
        with pytest.raises(errors.ProviderError) as caught:
            self._stream(cut(say("a long answer that ends too early", chunk=4), chunks=3))
        assert caught.value.partial

    # --- use --------------------------------------------------------------------------------------------------------

    def test_calls_follow_one_another_and_run_at_the_same_time(self) -> None:
        """A provider serves sub-agents too."""

        async def main(provider: Provider) -> list[str]:
            texts: list[str] = []

            async def one() -> None:
                last = [event async for event in provider.stream(request())][-1]
                assert isinstance(last, ModelReply)
                texts.append(last.message.text)

            await one()
            async with anyio.create_task_group() as tasks:
                for _ in range(3):
                    tasks.start_soon(one)
            await provider.aclose()
            return texts

        with self.make([say(name) for name in ("one", "two", "three", "four")]) as provider:
            texts = anyio.run(main, provider)
        assert texts[0] == "one"
        assert sorted(texts) == ["four", "one", "three", "two"]

    def test_a_call_can_be_cancelled_while_the_model_is_silent(self) -> None:
        """The interrupt of a user does not wait for a slow server, and the next call works."""

        async def main(provider: Provider) -> str:
            with anyio.move_on_after(0.2) as scope:
                async for _ in provider.stream(request()):
                    pass
            assert scope.cancelled_caught
            last = [event async for event in provider.stream(request())][-1]
            await provider.aclose()
            return last.message.text if isinstance(last, ModelReply) else ""

        with self.make([hang(say("slow"), chunks=1), say("second")]) as provider:
            assert anyio.run(main, provider) == "second"

    def test_a_stream_can_be_left_before_its_end(self) -> None:
        """Closing the generator closes what belongs to it."""

        async def main(provider: Provider) -> bool:
            async with aclosing(cast("AsyncGenerator[ModelEvent]", provider.stream(request()))) as events:
                async for _ in events:
                    break
            last = [event async for event in provider.stream(request())][-1]
            await provider.aclose()
            return isinstance(last, ModelReply)

        with self.make([say("many words " * 50), say("second")]) as provider:
            assert anyio.run(main, provider)
