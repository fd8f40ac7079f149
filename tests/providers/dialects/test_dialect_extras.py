"""What each dialect adds to the body of a request, and how it counts tokens."""

from __future__ import annotations

import json
from typing import Any

import pytest
from dialect_kit import READ, ask, request, with_transport
from testkit.servers import (
    GenericServer,
    LlamaCppServer,
    LMStudioServer,
    OllamaServer,
    OpenRouterServer,
    VLLMServer,
)
from testkit.servers.base import DialectServer

from lmagent.core.messages import assistant, user
from lmagent.core.model import ModelRequest
from lmagent.providers.cache_slot import slot_of
from lmagent.providers.dialects.base import ServerFacts
from lmagent.providers.dialects.probe import count_tokens, dialect_of

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


def extras(facts: ServerFacts, wanted: ModelRequest | None = None, slot: int | None = None) -> dict[str, Any]:
    return dialect_of(facts).extras(wanted or request(tools=()), facts, slot)


def test_llamacpp_is_asked_for_progress_and_keeps_its_cache() -> None:
    assert extras(ServerFacts(dialect="llamacpp", slots=2)) == {"cache_prompt": True, "return_progress": True}


def test_a_slot_is_sent_only_if_the_server_has_it() -> None:
    facts = ServerFacts(dialect="llamacpp", slots=2)
    assert extras(facts, slot=1)["id_slot"] == 1
    assert "id_slot" not in extras(facts, slot=2), "llama.cpp would wrap it around to the slot of another conversation"
    assert "id_slot" not in extras(facts, slot=-1)
    assert "id_slot" not in extras(ServerFacts(dialect="llamacpp"), slot=0)
    assert "id_slot" not in extras(ServerFacts(dialect="vllm"), slot=0)


def test_the_main_conversation_has_a_slot_to_itself() -> None:
    facts = ServerFacts(dialect="llamacpp", slots=3, id_slot=True)
    assert [slot_of(facts, lane) for lane in range(6)] == [0, 1, 2, 1, 2, 1]
    assert slot_of(ServerFacts(dialect="llamacpp", slots=1, id_slot=True), 1) is None
    assert slot_of(ServerFacts(dialect="lmstudio", slots=4), 0) is None


def test_openrouter_counts_everything_and_cuts_nothing() -> None:
    facts = ServerFacts(dialect="openrouter")
    assert extras(facts) == {
        "usage": {"include": True},
        "plugins": [{"id": "context-compression", "enabled": False}],
    }
    assert extras(facts, request(response_schema=SCHEMA))["provider"] == {"require_parameters": True}


def test_an_unknown_server_gets_nothing_that_it_may_not_know() -> None:
    assert extras(ServerFacts(), slot=0) == {}


# --- counting -------------------------------------------------------------------------------------------------------


def counted(server: DialectServer, subject: ModelRequest) -> int | None:
    facts = ask(server.base_url)
    return with_transport(lambda transport: count_tokens(transport, server.base_url, facts, subject))


TALK = request("word " * 400, messages=[user("word " * 400), assistant("yes"), user("and?")])


@pytest.mark.parametrize("make", [LlamaCppServer, VLLMServer])
def test_servers_with_a_tokenizer_count_whole_requests(make: type[DialectServer]) -> None:
    with make() as server:
        whole = counted(server, TALK)
        without_tools = counted(server, request(tools=(), messages=TALK.messages))
        assert whole is not None
        assert without_tools is not None
        assert 500 < without_tools < whole, "tools are part of the prompt"


@pytest.mark.parametrize("make", [OllamaServer, LMStudioServer, OpenRouterServer, GenericServer])
def test_servers_without_a_tokenizer_are_not_asked(make: type[DialectServer]) -> None:
    with make() as server:
        facts = ask(server.base_url)
        before = len(server.requests)
        assert with_transport(lambda transport: count_tokens(transport, server.base_url, facts, TALK)) is None
        assert len(server.requests) == before


def test_an_older_llamacpp_renders_the_conversation_before_it_counts() -> None:
    with LlamaCppServer() as server:
        server._posts.pop("/v1/chat/completions/input_tokens")
        assert counted(server, TALK) is not None
        rendered = [json.loads(received.raw) for received in server.requests if received.path == "/apply-template"]
        assert rendered[0]["tools"][0]["function"]["name"] == READ.name
