"""What each dialect adds to the body of a request, and how it counts tokens."""

from __future__ import annotations

import json
from typing import Any

import pytest
from dialect_kit import READ, ask, request, with_transport

from lmagent.core.messages import assistant, user
from lmagent.core.model import ModelRequest
from lmagent.providers.dialects.base import ModelFacts, RequestOptions, ServerFacts, slot_of
from lmagent.providers.dialects.ollama import native_extras
from lmagent.providers.dialects.probe import count_tokens, dialect_of
from lmagent.testing.servers import (
    GenericServer,
    LlamaCppServer,
    LMStudioServer,
    OllamaServer,
    OpenRouterServer,
    VLLMServer,
)
from lmagent.testing.servers.base import DialectServer

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
THINKER = ModelFacts(id="m", thinking=True)


def extras(facts: ServerFacts, wanted: ModelRequest | None = None, **options: Any) -> dict[str, Any]:
    return dialect_of(facts).extras(wanted or request(tools=()), facts, RequestOptions(**options))


def test_llamacpp_is_asked_for_progress_and_keeps_its_cache() -> None:
    assert extras(ServerFacts(dialect="llamacpp", slots=2)) == {"cache_prompt": True, "return_progress": True}
    assert extras(ServerFacts(dialect="llamacpp"), progress=False, timings=True) == {
        "cache_prompt": True,
        "timings_per_token": True,
    }


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


def test_llamacpp_takes_a_grammar_beside_tools_only_without_its_own_for_them() -> None:
    facts = ServerFacts(dialect="llamacpp")
    assert extras(facts, grammar='root ::= "a"')["grammar"] == 'root ::= "a"'
    assert "tool_choice" not in extras(facts, grammar='root ::= "a"')
    assert extras(facts, request(), grammar='root ::= "a"')["tool_choice"] == "none"
    assert extras(facts, request(), schema=SCHEMA)["tool_choice"] == "none"


@pytest.mark.parametrize("name", ["llamacpp", "lmstudio", "vllm", "openrouter", "ollama", "generic"])
def test_a_schema_is_sent_in_the_form_that_the_common_route_shares(name: str) -> None:
    fields = extras(ServerFacts(dialect=name), schema=SCHEMA)
    assert fields["response_format"]["type"] == "json_schema"
    assert fields["response_format"]["json_schema"]["schema"] == SCHEMA


@pytest.mark.parametrize(
    ("version", "field"),
    [
        ("0.9.1", {"guided_grammar": "g"}),
        ("0.10.2", {"guided_grammar": "g"}),
        ("0.11.0", {"structured_outputs": {"grammar": "g"}}),
        ("0.12.0rc1", {"structured_outputs": {"grammar": "g"}}),
        ("", {"structured_outputs": {"grammar": "g"}}),
        ("dev", {"structured_outputs": {"grammar": "g"}}),
    ],
)
def test_vllm_takes_a_grammar_under_the_name_of_its_version(version: str, field: dict[str, Any]) -> None:
    assert extras(ServerFacts(dialect="vllm", version=version), grammar="g") == field


def test_openrouter_counts_everything_and_cuts_nothing() -> None:
    facts = ServerFacts(dialect="openrouter")
    assert extras(facts) == {
        "usage": {"include": True},
        "plugins": [{"id": "context-compression", "enabled": False}],
    }
    assert extras(facts, provider={"sort": "price"})["provider"] == {"sort": "price"}
    assert extras(facts, request(response_schema=SCHEMA))["provider"] == {"require_parameters": True}
    assert extras(facts, think="low")["reasoning"] == {"effort": "low"}
    assert extras(facts, think=False)["reasoning"] == {"enabled": False}


def test_an_unknown_server_gets_nothing_that_it_may_not_know() -> None:
    assert extras(ServerFacts(), slot=0, grammar="g", think=True, keep_alive="5m") == {}


def test_thinking_is_switched_in_each_servers_own_way() -> None:
    off = {"chat_template_kwargs": {"enable_thinking": False}}
    assert extras(ServerFacts(dialect="vllm"), think=False) == off
    assert extras(ServerFacts(dialect="llamacpp"), think=False, progress=False) == {"cache_prompt": True} | off
    assert extras(ServerFacts(dialect="ollama", model=THINKER), think=False) == {"reasoning_effort": "none"}
    assert extras(ServerFacts(dialect="ollama", model=ModelFacts(id="m")), think=True) == {}
    assert extras(ServerFacts(dialect="lmstudio"), think="high") == {"reasoning_effort": "high"}


@pytest.mark.parametrize(("wish", "seconds"), [("30m", 1800), ("90", 90), ("1h", 3600), (60, 60), ("5s", 5)])
def test_lm_studio_keeps_a_model_for_so_many_seconds(wish: str | int, seconds: int) -> None:
    assert extras(ServerFacts(dialect="lmstudio"), keep_alive=wish) == {"ttl": seconds}


@pytest.mark.parametrize("wish", [None, -1, 0, "for ever", "", "m"])
def test_lm_studio_is_not_told_what_it_would_not_understand(wish: Any) -> None:
    assert extras(ServerFacts(dialect="lmstudio"), keep_alive=wish) == {}


def test_the_native_route_of_ollama_is_told_never_to_cut() -> None:
    facts = ServerFacts(dialect="ollama", model=THINKER)
    assert native_extras(request(), facts, RequestOptions()) == {"truncate": False, "shift": False}
    fields = native_extras(request(response_schema=SCHEMA), facts, RequestOptions(think="low", keep_alive="30m"))
    assert (fields["format"], fields["think"], fields["keep_alive"]) == (SCHEMA, "low", "30m")
    assert "think" not in native_extras(request(), ServerFacts(dialect="ollama"), RequestOptions(think=True))


# --- counting -------------------------------------------------------------------------------------------------------


def counted(server: DialectServer, subject: str | ModelRequest) -> int | None:
    facts = ask(server.base_url)
    return with_transport(lambda transport: count_tokens(transport, server.base_url, facts, subject))


TALK = request("word " * 400, messages=[user("word " * 400), assistant("yes"), user("and?")])


@pytest.mark.parametrize("make", [LlamaCppServer, VLLMServer])
def test_servers_with_a_tokenizer_count_texts_and_whole_requests(make: type[DialectServer]) -> None:
    with make() as server:
        assert counted(server, "x" * 400) == 100
        whole = counted(server, TALK)
        without_tools = counted(server, request(tools=(), messages=TALK.messages))
        assert whole is not None
        assert without_tools is not None
        assert 500 < without_tools < whole, "tools are part of the prompt"


@pytest.mark.parametrize("kind", ["koboldcpp", "tabbyapi"])
def test_two_generic_servers_count_texts(kind: Any) -> None:
    with GenericServer(kind=kind) as server:
        assert counted(server, "x" * 400) == 100
        assert counted(server, TALK) is None


@pytest.mark.parametrize("make", [OllamaServer, LMStudioServer, OpenRouterServer, GenericServer])
def test_servers_without_a_tokenizer_are_not_asked(make: type[DialectServer]) -> None:
    with make() as server:
        facts = ask(server.base_url)
        before = len(server.requests)
        assert with_transport(lambda transport: count_tokens(transport, server.base_url, facts, "text")) is None
        assert len(server.requests) == before


def test_an_older_llamacpp_renders_the_conversation_before_it_counts() -> None:
    with LlamaCppServer() as server:
        server._posts.pop("/v1/chat/completions/input_tokens")
        assert counted(server, TALK) is not None
        rendered = [json.loads(received.raw) for received in server.requests if received.path == "/apply-template"]
        assert rendered[0]["tools"][0]["function"]["name"] == READ.name
