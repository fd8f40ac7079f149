"""The server as the program uses it: asked again when it can say more, and believed no further than it can be."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import anyio
import pytest
from dialect_kit import answering, request
from testkit.servers import GenericServer, LlamaCppServer, LMStudioServer
from testkit.servers.base import DialectServer, Lies

from lmagent.core.errors import ContextOverflow
from lmagent.core.messages import Message, Text, user
from lmagent.core.model import ModelReply, ModelRequest, Usage
from lmagent.providers.dialects import probe as probing
from lmagent.providers.served import Endpoint, Served, SessionProvider
from lmagent.providers.transport import HttpTransport
from lmagent.testing import say
from lmagent.testing.fakes import FakeClock
from lmagent.testing.loopback import LoopbackServer, Pause, Received, Response
from lmagent.testing.wire import Counts

T = TypeVar("T")


def using(url: str, work: Callable[[Served, SessionProvider], Awaitable[T]], clock: FakeClock | None = None) -> T:
    async def main() -> T:
        served = Served(Endpoint(url), HttpTransport({}), clock or FakeClock(auto=True))
        try:
            with anyio.fail_after(30):
                return await work(served, served.for_session(0))
        finally:
            await served.aclose()

    return anyio.run(main)


async def reply(lane: SessionProvider, wanted: ModelRequest) -> ModelReply:
    last = [event async for event in lane.stream(wanted)][-1]
    assert isinstance(last, ModelReply)
    return last


def questions(server: DialectServer, path: str) -> int:
    return sum(received.path == path for received in server.requests)


def test_the_window_of_a_model_that_the_first_request_loads_is_known_after_it() -> None:
    async def work(served: Served, lane: SessionProvider) -> tuple[Any, Any]:
        before = await served.window(server.model)
        for _ in range(5):
            await reply(lane, request(model=server.model))
        return before, await served.window(server.model)

    with LMStudioServer(lambda _: say("yes"), loaded=False, window=4096) as server:
        assert using(server.base_url, work) == (None, 4096)
        assert questions(server, "/api/v1/models") == 2


def test_a_server_that_does_not_say_it_even_then_is_not_asked_for_ever() -> None:
    async def work(served: Served, lane: SessionProvider) -> None:
        for _ in range(12):
            await reply(lane, request(model=server.model))

    with LMStudioServer(lambda _: say("yes"), loaded=True, lies=Lies(stated_as_text=True)) as server:
        using(server.base_url, work)
        assert questions(server, "/api/v1/models") < 6


def test_a_server_that_was_started_anew_with_less_is_asked_again() -> None:
    async def work(served: Served, lane: SessionProvider) -> Any:
        messages = [user("begin " + "words " * 2000)]
        await reply(lane, request(model=server.model, messages=list(messages)))
        server.window = 4096
        messages += [Message("assistant", (Text("yes"),)), user("more " + "words " * 1500)]
        with pytest.raises(ContextOverflow) as caught:
            await reply(lane, request(model=server.model, messages=list(messages)))
        assert caught.value.silent
        return await served.window(server.model)

    with LlamaCppServer(lambda _: say("yes"), context=32768, lies=Lies(cut=True)) as server:
        assert using(server.base_url, work) == 4096


def test_a_count_that_is_always_the_same_round_figure_is_looked_into_once() -> None:
    async def work(served: Served, lane: SessionProvider) -> None:
        for _ in range(8):
            await reply(lane, request(model=server.model))

    def answer(_: Received) -> Any:
        return dataclasses.replace(say("yes"), usage=Counts(1024, 5, 0))

    with GenericServer(answer) as server:
        using(server.base_url, work)
        assert 2 <= questions(server, "/v1/models") <= 3
        assert server.connections == 1, "what is asked about a reply can use the connection that brought it"


def test_one_absurd_count_never_reaches_the_session() -> None:
    def answer(_: Received) -> Any:
        behaviour = say("yes")
        return behaviour if len(server.chats) != 2 else with_counts(behaviour, Counts(10**12, 5, 0))

    def with_counts(behaviour: Any, counts: Any) -> Any:
        return dataclasses.replace(behaviour, usage=counts)

    async def work(served: Served, lane: SessionProvider) -> list[Usage]:
        wanted = request(model=server.model, messages=[user("words " * 1000)])
        return [(await reply(lane, wanted)).usage for _ in range(3)]

    with GenericServer(answer) as server:
        first, second, third = using(server.base_url, work)
    assert not first.estimated
    assert second.estimated
    assert second.prompt_tokens < 10_000
    assert third.prompt_tokens == first.prompt_tokens


def test_without_a_name_the_model_is_asked_for_whose_window_is_planned_with() -> None:
    models = [
        {"type": "llm", "key": "big-unloaded", "loaded_instances": [], "max_context_length": 131072},
        {
            "type": "llm",
            "key": "small-loaded",
            "loaded_instances": [{"id": "small-loaded", "config": {"context_length": 16384}}],
            "max_context_length": 131072,
        },
    ]

    async def work(served: Served, lane: SessionProvider) -> Any:
        assert await served.window("") == 16384
        return (await reply(lane, request(model=""))).message.text

    async def ask(received: Received) -> Response:
        if received.path == "/v1/models":
            listed = [{"id": name, "owned_by": "organization_owner"} for name in ("big-unloaded", "small-loaded")]
            return json_response({"object": "list", "data": listed})
        if received.path == "/api/v1/models":
            return json_response({"models": models})
        if received.path == "/v1/chat/completions":
            said = {"message": {"role": "assistant", "content": received.body["model"]}, "finish_reason": "stop"}
            return json_response({"choices": [{"index": 0, **said}]})
        return json_response({"error": "Unexpected endpoint"})

    with LoopbackServer(ask) as server:
        assert using(server.url, work) == "small-loaded"


def json_response(value: Any) -> Response:
    return Response((json.dumps(value).encode(),))


def slow(value: Any, seconds: float = 1.0) -> Response:
    return Response((Pause(seconds), json.dumps(value).encode()), framing="chunked")


OLLAMA = {
    "GET /v1/models": {"object": "list", "data": [{"id": "llama3:latest", "owned_by": "library"}]},
    "GET /api/version": {"version": "0.12.0"},
    "GET /api/ps": {"models": [{"name": "llama3:latest", "model": "llama3:latest", "context_length": 8192}]},
    "GET /api/tags": {"models": [{"name": "llama3:latest", "model": "llama3:latest", "details": {}}]},
    "POST /api/show": {"capabilities": ["completion"], "model_info": {"llama.context_length": 131072}},
}


@pytest.mark.parametrize("quick", [[], ["GET /v1/models"]])
def test_an_ollama_that_is_slow_is_an_ollama_all_the_same(quick: list[str]) -> None:
    async def work(served: Served, lane: SessionProvider) -> list[bool]:
        return [(await served.facts("llama3")).native_chat for _ in range(4)]

    routes = {key: value if key in quick else slow(value) for key, value in OLLAMA.items()}
    with answering(routes) as server:
        assert using(server.url, work) == [True] * 4
        assert len(server.requests) <= len(OLLAMA)


def test_one_that_says_only_whose_models_it_has_is_not_asked_by_the_route_that_cuts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(probing, "KNOWN_BUDGET", 1.0)
    clock = FakeClock(auto=True)

    async def work(served: Served, lane: SessionProvider) -> tuple[str, int, str, int]:
        url = (await served.chat("llama3", 0)).url
        for _ in range(5):
            await served.chat("llama3", 0)
        asked = len(server.requests)
        await clock.sleep(60)
        return url, asked, (await served.chat("llama3", 0)).url, len(server.requests)

    with answering({"GET /v1/models": OLLAMA["GET /v1/models"], "*": slow({}, 20.0)}) as server:
        first, asked, later, again = using(server.url, work, clock)
    assert first.endswith("/api/chat")
    assert later.endswith("/api/chat")
    assert asked == 2
    assert again > asked, "some time later it is asked again"
