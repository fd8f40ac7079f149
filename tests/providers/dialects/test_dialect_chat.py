"""The Provider that fits a server: it passes the port's suite on each, sends what it should, and keeps slots apart."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import anyio
import pytest
from dialect_kit import ask, request
from testkit.servers import (
    GenericServer,
    LlamaCppServer,
    LMStudioServer,
    OllamaServer,
    VLLMServer,
)
from testkit.servers.base import DialectServer

from lmagent.core.messages import assistant, user
from lmagent.core.model import ModelEvent, ModelReply, ModelRequest, Progress
from lmagent.core.ports import Provider
from lmagent.providers.cache_slot import slot_of
from lmagent.providers.dialects.base import ServerFacts
from lmagent.providers.dialects.ollama_chat import OllamaChat
from lmagent.providers.openai_chat import OpenAIChat
from lmagent.providers.retry import RetryPolicy
from lmagent.providers.served import Endpoint, provider_for
from lmagent.providers.transport import HttpTransport
from lmagent.testing import ScriptedServer, say, status
from lmagent.testing.conformance import ProviderConformance
from lmagent.testing.fakes import FakeClock
from lmagent.testing.script import Behaviour

ONE_TRY = RetryPolicy(tries=1)


def fitting(server: ScriptedServer, facts: ServerFacts | None = None, slot: int | None = None) -> OpenAIChat:
    endpoint = Endpoint(server.base_url, window=16_384, retries=ONE_TRY)
    return provider_for(endpoint, facts or ask(server.base_url), HttpTransport({}), FakeClock(auto=True), slot)


def talk(*steps: tuple[Provider, ModelRequest]) -> list[list[ModelEvent]]:
    """One request after the other, in one event loop; the events of each."""

    async def main() -> list[list[ModelEvent]]:
        try:
            with anyio.fail_after(20):
                return [[event async for event in client.stream(wanted)] for client, wanted in steps]
        finally:
            for client in {id(client): client for client, _ in steps}.values():
                await client.aclose()

    return anyio.run(main)


def reply_of(client: Provider, *requests: ModelRequest) -> ModelReply:
    """The last reply."""
    last = talk(*((client, wanted) for wanted in requests))[-1][-1]
    assert isinstance(last, ModelReply)
    return last


class OnServer(ProviderConformance):
    server: Callable[[Sequence[Behaviour]], DialectServer]

    @contextmanager
    def make(self, replies: Sequence[Behaviour]) -> Iterator[Provider]:
        with type(self).server(replies) as server:
            yield fitting(server)


class TestOnLMStudio(OnServer):
    server = LMStudioServer


class TestOnVLLM(OnServer):
    server = VLLMServer


class TestOnLlamaCpp(OnServer):
    @staticmethod
    def server(replies: Sequence[Behaviour]) -> DialectServer:
        return LlamaCppServer(replies, slots=4, context=32_768)

    async def test_usage_is_what_the_server_counted(self) -> None:
        """The fake counts what its slots really held."""
        last = await self._reply(say("hi"))
        assert last.usage.prompt_tokens > 20
        assert not last.usage.estimated


@pytest.mark.parametrize(
    ("make", "kind"),
    [(LlamaCppServer, OpenAIChat), (OllamaServer, OllamaChat), (GenericServer, OpenAIChat)],
)
def test_each_server_gets_the_provider_that_fits_it(make: type[DialectServer], kind: type[OpenAIChat]) -> None:
    with make([say("hi")]) as server:
        client = fitting(server)
        assert type(client) is kind
        assert reply_of(client, request(model=server.model)).message.text == "hi"


def test_llamacpp_shows_how_far_the_prompt_is_read() -> None:
    with LlamaCppServer([say("hi")], context=65_536, batch=4096) as server:
        [events] = talk((fitting(server), request("x" * 80_000)))
    fractions = [event.fraction for event in events if isinstance(event, Progress)]
    assert fractions[0] == 0.0
    assert fractions[-1] == 1.0
    assert len(fractions) == 6


def test_the_usage_tells_how_much_came_from_the_cache() -> None:
    with LlamaCppServer(lambda _: say("hi"), context=65_536) as server:
        first = user("x" * 40_000)
        longer = request(messages=[first, assistant("hi"), user("more")])
        last = reply_of(fitting(server), request(messages=[first]), longer)
    assert last.usage.cached_tokens > 9_900
    assert last.usage.prompt_tokens - last.usage.cached_tokens < 50


def test_side_conversations_in_slots_of_their_own_never_evict_the_main_one() -> None:
    with LlamaCppServer(lambda _: say("hi"), context=3 * 65_536, slots=3) as server:
        facts = ask(server.base_url)
        main = fitting(server, facts, slot=slot_of(facts, 0))
        sides = [fitting(server, facts, slot=slot_of(facts, lane)) for lane in (1, 2, 3)]
        history = [user("x" * 40_000)]
        steps: list[tuple[Provider, ModelRequest]] = []
        for turn in range(3):
            steps.append((main, request(messages=list(history))))
            steps += [(side, request(f"side {number} in turn {turn} " * 300)) for number, side in enumerate(sides)]
            history += [assistant("hi"), user(f"turn {turn}")]
        talk(*steps)
        mine = [row for row in server.kv.log if row.slot == 0]
        assert [row.why for row in server.kv.log] == ["id"] * 12
        assert sum(row.evicted for row in mine) == 0
        assert sum(row.read for row in mine[1:]) < 100


def test_a_field_that_a_server_refuses_is_not_sent_again() -> None:
    def picky(received: Any) -> Behaviour:
        for field in ("return_progress", "cache_prompt", "stream_options"):
            if field in received.fields:
                return status(400, {"error": {"message": f"Unrecognized request argument supplied: {field}"}})
        return say("hi")

    with ScriptedServer(picky) as server:
        client = fitting(server, ServerFacts(dialect="llamacpp"))
        assert reply_of(client, request(), request()).message.text == "hi"
        assert len(server.chats) == 5, "three refusals, then two replies"


def test_strict_servers_of_unknown_kind_find_nothing_to_object_to() -> None:
    with ScriptedServer([say("hi")], strict=True) as server:
        reply_of(fitting(server), request(temperature=0.0, max_tokens=100))
        assert server.objections == []


def test_an_earlier_body_is_a_byte_exact_beginning_of_a_later_one() -> None:
    with LlamaCppServer(lambda _: say("hi"), slots=2) as server:
        client = fitting(server, slot=1)
        messages = [user("one")]
        requests: list[ModelRequest] = []
        for turn in range(4):
            requests.append(request(messages=list(messages)))
            messages += [assistant("hi"), user(f"turn {turn}")]
        reply_of(client, *requests)
        bodies = [received.raw for received in server.chats]
    assert all(later.startswith(earlier.removesuffix(b"]}")) for earlier, later in pairwise(bodies))
