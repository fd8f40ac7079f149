"""The probe is quick, asks only what it may, and survives any answer."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
from dialect_kit import answering, ask, fixture, names
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from testkit.amount import examples

from lmagent.core.errors import ConfigError
from lmagent.providers.dialects.ask import LIMIT
from lmagent.providers.dialects.base import Seen, ServerFacts
from lmagent.providers.dialects.probe import DIALECTS, dialect, dialect_of, probe
from lmagent.providers.transport import Timeouts
from lmagent.providers.transport import TransportResponse as Received
from lmagent.providers.urls import is_near
from lmagent.testing import ScriptedServer, faults, hang
from lmagent.testing.loopback import Drop, Pause, Response

LIST: dict[str, Any] = {"object": "list", "data": [{"id": "m", "object": "model"}]}
ODD: dict[str, Any] = {
    "a web page everywhere": b"<!doctype html><html><body>hello</body></html>",
    "nothing at all": b"",
    "not JSON": b"{not json",
    "a bare number": b"7",
    "null": b"null",
    "a list": b"[]",
    "a string": b'"hello"',
    "nested too deeply": b'{"data":' + b"[" * 20_000 + b"]" * 20_000 + b"}",
    "infinite figures": b'{"data":[{"id":"m","max_model_len":1e999,"owned_by":"vllm"}],"models":[{"key":"m"}]}',
    "figures as text": {"data": [{"id": "m", "max_model_len": "32768", "owned_by": "vllm"}], "version": 7},
    "objects for texts": {"data": [{"id": {"a": 1}, "owned_by": ["x"]}], "models": {"a": 1}, "version": {}},
    "broken UTF-8": b'{"data":[{"id":"\xff\xfe","owned_by":"llamacpp"}],"default_generation_settings":{"n_ctx":-4096}}',
    "an error with status 200": {"error": "Unexpected endpoint or method. Returning 200 anyway"},
    "an error with status 500": Response((b'{"data":[{"id":"m"}]}',), 500),
    "a redirect": Response((b"",), 302, {"Location": "http://127.0.0.1:1/"}),
    "an answer that breaks off": Response((b'{"data":', Drop()), framing="chunked"),
    "an answer larger than the limit": b'{"data":[' + b" " * LIMIT + b"]}",
}


@pytest.mark.parametrize("kind", ODD)
def test_an_odd_answer_is_no_answer(kind: str) -> None:
    with answering({"*": ODD[kind], "POST /api/show": ODD[kind]}) as server:
        facts = ask(server.url, "m")
    assert facts.reached
    assert facts.model is None or facts.model.window is None


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_facts_survive_any_value_in_any_place(data: st.DataObject) -> None:
    """Everything in a recorded answer may be of the wrong type."""
    odd = (None, True, [], {}, [None, 7, {"id": 7}], {"models": [{"name": None}]})
    junk = st.one_of(st.sampled_from(odd), st.integers(), st.floats(), st.text(max_size=4))

    def spoil(value: Any) -> Any:
        if data.draw(st.integers(0, 9)) == 0:
            return data.draw(junk)
        if isinstance(value, dict):
            return {key: spoil(item) for key, item in list(value.items())[:12]}
        return [spoil(item) for item in value] if isinstance(value, list) else value

    recorded = fixture(data.draw(st.sampled_from(names())))
    routes = {key.split()[1]: value for key, value in recorded["routes"].items() if " " in key}
    listing = spoil(routes.get(recorded["base"] + "/models"))
    answers = {path: spoil(value) for path, value in routes.items()}
    seen = Seen(root="http://127.0.0.1:1", local=True, listing=listing, answers=answers)

    class Spoiling:
        root, reached = seen.root, True

        async def get(self, path: str, query: Any = None) -> Any:
            return answers.get(path)

        async def post(self, path: str, body: Any) -> Any:
            return answers.get(path)

    for each in map(dialect, DIALECTS):
        if each.claims(seen):
            facts = anyio.run(each.read, seen, Spoiling(), recorded["model"])
            assert isinstance(facts, ServerFacts)
            for model in facts.models:
                assert model.window is None or 16 <= model.window <= 10**9
                assert isinstance(model.id, str)


def test_a_port_where_nothing_listens_is_known_at_once() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    begun = time.monotonic()
    facts = ask(f"http://127.0.0.1:{port}/v1", "m")
    assert facts == ServerFacts()
    assert time.monotonic() - begun < 5  # generous: the machine may be busy


def test_a_server_that_never_answers_is_given_up() -> None:
    with ScriptedServer(hang(), routes={"/v1/models": hang()}) as server:
        facts = ask(server.base_url)
    assert not facts.reached


def test_what_is_known_counts_when_the_rest_takes_too_long() -> None:
    slow = Response((Pause(5.0), b"{}"), framing="chunked")
    listed = {"object": "list", "data": [{"id": "m", "max_model_len": 4096, "owned_by": "someone"}]}
    with answering({"GET /v1/models": listed, "*": slow}) as server:
        facts = ask(server.url, "m", budget=0.3)
    assert facts.reached
    assert facts.model is not None
    assert facts.model.window == 4096


def test_a_model_that_nobody_describes_leaves_the_server_known() -> None:
    slow = Response((Pause(5.0), b"{}"), framing="chunked")
    with answering(fixture("ollama/loaded-with-the-default")["routes"] | {"POST /api/show": slow}) as server:
        facts = ask(server.url, "qwen3:8b")
    assert (facts.dialect, facts.native_chat) == ("ollama", True)
    assert facts.model is not None
    assert (facts.model.window, facts.model.proof) == (4096, "loaded")


def test_one_slow_route_does_not_hide_the_others() -> None:
    routes = fixture("lmstudio/loaded")["routes"] | {"*": Response((Pause(5.0), b"{}"), framing="chunked")}
    with answering(routes) as server:
        facts = ask(server.url)
    assert (facts.dialect, facts.model and facts.model.window) == ("lmstudio", 49_152)


def test_a_server_that_says_who_it_is_is_asked_only_its_own_questions() -> None:
    recorded = fixture("llamacpp/two-slots")
    with answering(recorded["routes"]) as server:
        ask(server.url)
        assert [received.path for received in server.requests] == ["/v1/models", "/props"]


def test_the_key_goes_with_every_question_and_nothing_else_of_ours_does() -> None:
    with answering(fixture("ollama/loaded-with-the-default")["routes"]) as server:
        ask(server.url, "qwen3:8b", "sk-secret")
        headers = [received.headers for received in server.requests]
    assert {fields["authorization"] for fields in headers} == {"Bearer sk-secret"}
    assert {fields["user-agent"] for fields in headers} == {"lmagent"}


def test_a_refused_key_leaves_a_server_that_was_reached() -> None:
    with ScriptedServer(api_key="right") as server:
        facts = ask(server.base_url, "m", "wrong")
    assert facts.reached
    assert facts.dialect == "generic"
    assert facts.models == ()


def test_a_loading_server_is_reached_and_generic() -> None:
    with ScriptedServer(routes={"/v1/models": faults.loading()}, unknown=faults.loading()) as server:
        assert ask(server.base_url).reached


@pytest.mark.parametrize(
    ("root", "near"),
    [
        ("http://localhost:1234", True),
        ("http://127.0.0.1:8080", True),
        ("http://192.168.1.7:8000", True),
        ("http://10.0.0.3:8000", True),
        ("http://[fd00::1]:8000", True),
        ("http://gpu-box:8000", True),
        ("http://gpu.lan:8000", True),
        ("https://api.example.com", False),
        ("https://8.8.8.8", False),
        ("https://[2606:4700::1111]", False),
        ("http://127.0.0.1.example.com", False),
    ],
)
def test_only_servers_nearby_are_asked_freely(root: str, near: bool) -> None:
    assert is_near(root) is near


class FarAway:
    """A transport to a server on the internet: answers by path, and a note of what was asked."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self.answers = answers
        self.asked: list[str] = []

    async def send(self, method: str, url: str, headers: Any, body: bytes, timeouts: Timeouts) -> Received:
        path = url.removeprefix("https://api.example.com")
        self.asked.append(f"{method} {path}")

        async def chunks() -> AsyncIterator[bytes]:
            yield json.dumps(self.answers.get(path, {"error": "no such route"})).encode()

        async def close() -> None:
            pass

        return Received(200 if path in self.answers else 404, {}, chunks(), close)

    async def aclose(self) -> None:
        pass


def far(answers: dict[str, Any], model: str = "m") -> tuple[ServerFacts, list[str]]:
    transport = FarAway(answers)
    facts = anyio.run(probe, transport, "https://api.example.com/v1", model)
    return facts, transport.asked


def test_a_server_on_the_internet_is_asked_for_its_models_and_nothing_else() -> None:
    facts, asked = far({"/v1/models": {"data": [{"id": "m", "context_window": 32_768, "owned_by": "somebody"}]}})
    assert asked == ["GET /v1/models"]
    assert facts.model is not None
    assert (facts.model.window, facts.model.proof) == (32_768, "setting"), "hosted models are served as they are listed"


def test_one_that_says_whose_it_is_is_asked_that_ones_questions_alone() -> None:
    listed = {"data": [{"id": "m", "owned_by": "vllm", "max_model_len": 8192}]}
    facts, asked = far({"/v1/models": listed, "/version": {"version": "0.12.0"}})
    assert asked == ["GET /v1/models", "GET /version"]
    assert (facts.dialect, facts.version) == ("vllm", "0.12.0")
    facts, asked = far({"/v1/models": {"data": [{"id": "m", "owned_by": "organization_owner"}]}})
    assert sorted(asked) == ["GET /api/v0/models", "GET /api/v1/models", "GET /v1/models"]
    assert (facts.dialect, facts.reached) == ("generic", True)


def test_a_url_that_is_none_is_refused_in_words() -> None:
    with pytest.raises(ConfigError, match="is not the URL of a model server"):
        ask("not a url at all")


def test_each_dialect_can_be_found_again_by_its_facts() -> None:
    assert [dialect_of(ServerFacts(dialect=name)).name for name in DIALECTS] == list(DIALECTS)
    assert dialect_of(ServerFacts(dialect="of a later version")).name == "generic"
