"""The real adapters pass the suites of their ports."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from lmagent.app.clock import SystemClock
from lmagent.core.messages import Message, Text, Thinking, ToolCall, user
from lmagent.core.model import ModelEvent, ModelReply, ModelRequest, TextChunk, ThinkingChunk
from lmagent.core.ports import Clock, EventStore, Provider
from lmagent.providers.openai_chat import OpenAIChat
from lmagent.providers.retry import RetryPolicy
from lmagent.providers.transport import HttpTransport
from lmagent.store.jsonl import JsonlStore
from lmagent.testing import ScriptedCall, ScriptedServer, quirks, script
from lmagent.testing.conformance import (
    ClockConformance,
    EventStoreConformance,
    ProviderConformance,
)
from lmagent.testing.fakes import FakeClock
from lmagent.testing.script import Behaviour


def provider_for(server: ScriptedServer) -> OpenAIChat:
    clock = FakeClock(auto=True)
    return OpenAIChat(server.base_url, transport=HttpTransport(), clock=clock, retries=RetryPolicy(tries=1))


class TestOpenAIChat(ProviderConformance):
    @contextmanager
    def make(self, replies: Sequence[Behaviour]) -> Iterator[Provider]:
        with ScriptedServer(replies, strict=True) as server:
            yield provider_for(server)


class TestJsonlStore(EventStoreConformance):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.root = tmp_path / "sessions"

    def make(self) -> EventStore:
        return JsonlStore(self.root, SystemClock())

    def again(self, store: EventStore) -> EventStore:
        return self.make()


class TestSystemClock(ClockConformance):
    def make(self) -> Clock:
        return SystemClock()


CALLS = (ScriptedCall("read", '{"path":"ä.txt","limit":3}'), ScriptedCall("ls", '{"path":"sub"}'))
PLAIN = script.reply(text="Grüße, 世界! " * 3, thinking="Let me see.", calls=CALLS)


async def read_reply(server: ScriptedServer) -> list[ModelEvent]:
    provider = provider_for(server)
    try:
        with anyio.fail_after(10):
            return [event async for event in provider.stream(ModelRequest("m", "s", (), [user("hello")]))]
    finally:
        await provider.aclose()


def facts(message: Message) -> list[tuple[str, ...]]:
    """A message without the ids of its calls."""
    told: list[tuple[str, ...]] = []
    for part in message.parts:
        match part:
            case ToolCall(name=name, arguments=arguments):
                told.append(("call", name, arguments))
            case Text(text=text) | Thinking(text=text):
                told.append((type(part).__name__, text.strip()))
            case _:
                raise AssertionError(part)
    return told


@pytest.mark.parametrize("name", list(quirks.HARMLESS))
def test_a_harmless_quirk_does_not_change_what_is_read(name: str) -> None:
    with ScriptedServer([quirks.HARMLESS[name](PLAIN)]) as server:
        events = anyio.run(read_reply, server)
    last = events[-1]
    assert isinstance(last, ModelReply)
    assert facts(last.message) == [
        ("Thinking", "Let me see."),
        ("Text", PLAIN.text.strip()),
        ("call", "read", CALLS[0].arguments),
        ("call", "ls", CALLS[1].arguments),
    ]
    assert len({call.id for call in last.message.tool_calls}) == 2
    assert last.finish_reason == "tool_calls"
    assert not last.truncated_calls
    if name != "closing_tag_only":  # what was shown before the tag came cannot be taken back
        assert "".join(event.text for event in events if isinstance(event, TextChunk)).strip() == PLAIN.text.strip()
        assert "".join(event.text for event in events if isinstance(event, ThinkingChunk)).strip() == "Let me see."


COMBINED: list[Callable[[script.Reply], script.Reply]] = [
    lambda reply: quirks.crlf(quirks.think_tags(quirks.split_utf8(reply))),
    lambda reply: quirks.ollama_index_zero(quirks.arguments_as_object(quirks.no_done(reply))),
    lambda reply: quirks.empty_deltas(quirks.keepalive_comments(quirks.one_byte_pieces(reply))),
    lambda reply: quirks.duplicate_deltas(quirks.repeated_heads(quirks.usage_in_last_chunk(reply))),
]


@pytest.mark.parametrize("quirk", COMBINED)
def test_quirks_may_come_together(quirk: Callable[[script.Reply], script.Reply]) -> None:
    with ScriptedServer([quirk(PLAIN)]) as server:
        last = anyio.run(read_reply, server)[-1]
    assert isinstance(last, ModelReply)
    assert len(facts(last.message)) == 4


@pytest.mark.parametrize("name", ["usage_zero", "usage_missing"])
def test_missing_figures_are_estimated_and_marked(name: str) -> None:
    with ScriptedServer([quirks.LOSSY[name](PLAIN)]) as server:
        last = anyio.run(read_reply, server)[-1]
    assert isinstance(last, ModelReply)
    assert last.usage.estimated
    assert last.usage.prompt_tokens > 0


def test_text_behind_an_unclosed_tag_is_thought() -> None:
    with ScriptedServer([quirks.unclosed_think(script.think("hm. ", script.say("still thinking")))]) as server:
        last = anyio.run(read_reply, server)[-1]
    assert isinstance(last, ModelReply)
    assert last.message.text == ""
