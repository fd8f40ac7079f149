"""The routes, and what bad requests get."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator

import openai
import pytest
from router_kit import HELLO, Lab, Model, calling_gguf, lab, tool
from testkit.engine import EngineServer

from lmagent.modelserver.pool.journal import Journal
from lmagent.modelserver.spec import LoadOptions
from lmagent.testing import ScriptedServer
from lmagent.testing.script import say


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    for package in ("xllamacpp", "gguf"):
        pytest.importorskip(package, reason=f"the real engine was NOT tested: the package {package} is missing")
    with EngineServer(calling_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf"), context=8192) as server:
        with lab(Model("tiny", server.url), Model("cold", state="unloaded")) as running:
            yield running


@pytest.fixture
def client(engine) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=engine.base_url, api_key="any", max_retries=0) as opened:
        yield opened


@pytest.mark.engine
def test_openais_client_lists_models_and_talks(client):
    assert [model.id for model in client.models.list()] == ["tiny", "cold"]
    assert client.models.retrieve("tiny").owned_by == "lmagent"
    answer = client.chat.completions.create(model="tiny", messages=HELLO, max_tokens=8)
    assert answer.choices[0].message.content
    assert answer.usage.completion_tokens == 8
    stream = client.chat.completions.create(
        model="tiny", messages=HELLO, max_tokens=8, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert chunks[-1].usage.completion_tokens == 8
    assert client.completions.create(model="tiny", prompt="a", max_tokens=4).choices[0].text is not None


@pytest.mark.engine
@pytest.mark.parametrize("choice", ["auto", "required", {"type": "function", "function": {"name": "ls"}}])
def test_openais_client_calls_tools(client, choice):
    fields = {"tools": [tool("read"), tool("ls")], "tool_choice": choice, "max_tokens": 600}
    message = client.chat.completions.create(model="tiny", messages=HELLO, **fields).choices[0].message
    if choice != "auto":
        assert json.loads(message.tool_calls[0].function.arguments)["path"] is not None
    with client.chat.completions.stream(model="tiny", messages=HELLO, **fields) as stream:
        try:
            final = stream.get_final_completion().choices[0]
        except openai.LengthFinishReasonError:  # random weights, free to choose, may go on to the limit
            assert choice == "auto"
            return
    if choice != "auto":
        assert final.finish_reason == "tool_calls"
        assert final.message.tool_calls[0].function.name in ("read", "ls")


@pytest.mark.engine
def test_openais_client_gets_its_schema(client):
    schema = {"type": "object", "properties": {"n": {"type": "boolean"}}, "required": ["n"]}
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    answer = client.chat.completions.create(model="tiny", messages=HELLO, response_format=form, max_tokens=200)
    assert isinstance(json.loads(answer.choices[0].message.content)["n"], bool)


@pytest.mark.engine
def test_openais_client_understands_our_errors(client):
    with pytest.raises(openai.NotFoundError, match="there is no model 'nobody'"):
        client.chat.completions.create(model="nobody", messages=HELLO)
    with pytest.raises(openai.BadRequestError) as wrong:
        client.chat.completions.create(model="tiny", messages=HELLO, temperature="hot")
    assert wrong.value.param == "temperature"
    with pytest.raises(openai.APIStatusError) as refused:
        client.embeddings.create(model="tiny", input="a")
    assert "embedding = true" in str(refused.value)
    assert "--embeddings" not in str(refused.value)


@pytest.mark.engine
def test_other_routes_are_passed_on_where_the_engine_has_them(engine):
    assert engine.ask("POST", "/tokenize", {"content": "hello", "model": "tiny"})[1]["tokens"]
    body = {"model": "tiny", "max_tokens": 8, "messages": HELLO}
    answer = engine.ask("POST", "/v1/messages", body)
    assert (answer[0], answer[1]["type"]) == (200, "message")
    assert engine.ask("POST", "/v1/responses", {"model": "tiny", "input": "hi", "max_output_tokens": 8})[0] == 200
    code, _, _ = engine.ask("POST", "/v1/messages", {**body, "stream": True})
    assert code == 200
    code, props, _ = engine.ask("GET", "/props")
    assert props["default_generation_settings"]["n_ctx"] == 8192
    assert "model_path" not in props
    assert engine.ask("GET", "/props?model=cold")[1]["error"]["code"] == "model_not_loaded"


def test_a_request_without_a_model_gets_the_only_one_loaded_or_known_or_a_list():
    with ScriptedServer(lambda _: say("Hello.")) as server:
        loaded, cold, other = Model("a", server.url), Model("b", state="unloaded"), Model("c", state="unloaded")
        with lab(loaded, cold, other) as running:
            assert running.chat()[1]["model"] == "a"
            loaded.state = "unloaded"
            code, answer, _ = running.chat(model="")
            assert (code, answer["error"]["param"]) == (400, "model")
            assert "a, b, c" in answer["error"]["message"]
            loaded.state, other.engine, other.state = "ready", "upstream", "ready"  # another server's is not loaded
            assert running.chat()[1]["model"] == "a"
            assert [row["name"] for row in running.ask("GET", "/api/ps")[1]["models"]] == ["a"]
        with lab(loaded) as running:
            assert running.chat(model=None)[1]["model"] == "a"
        with lab() as running:
            assert running.chat()[0] == 404


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b"{", None),
        (b"[]", None),
        (b'"x"', None),
        (b"", None),
        (b"\xff\xfe", None),
        (b"[" * 200_000, None),
        ({}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": [5]}, "messages[0]"),
        ({"messages": [{"role": 5}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        ({"messages": HELLO, "model": 5}, "model"),
        ({"messages": HELLO, "stream": "yes"}, "stream"),
        ({"messages": HELLO, "max_tokens": True}, "max_tokens"),
        ({"messages": HELLO, "tools": {}}, "tools"),
        ({"messages": HELLO, "tools": [{"type": "function"}]}, "tools[0].function"),
        ({"messages": HELLO, "tools": [{"function": {"name": ""}}]}, "tools[0].function.name"),
        ({"messages": HELLO, "response_format": "json"}, "response_format"),
        ({"messages": HELLO, "tool_choice": 5}, "tool_choice"),
    ],
)
def test_a_body_that_is_wrong_is_a_400_that_names_the_field(wrong, body, param):
    code, answer, _ = wrong.ask("POST", "/v1/chat/completions", body)
    assert (code, answer["error"]["param"], answer["error"]["type"]) == (400, param, "invalid_request_error")


@pytest.fixture(scope="module")
def wrong() -> Iterator[Lab]:
    with lab(Model("m", "http://127.0.0.1:9")) as running:
        yield running


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "/etc/passwd", "a\0b", "%2e%2e%2f", "x" * 5000, "m\r\nX-Evil: 1", "\ud800"]
)
def test_names_that_are_paths_or_worse_are_just_unknown(wrong, name):
    body = json.dumps({"messages": HELLO, "model": name}).encode()
    code, answer, fields = wrong.ask("POST", "/v1/chat/completions", body)
    assert (code, answer["error"]["code"]) == (404, "model_not_found")
    assert "x-evil" not in fields
    assert wrong.ask("POST", "/api/load", {"model": name})[0] == 404
    assert wrong.ask("GET", "/v1/models/..%2f..%2fetc%2fpasswd")[0] == 404
    assert wrong.ask("GET", "/api/logs?model=..%2f..%2fetc%2fpasswd")[0] == 404


def test_routes_that_are_not_there_and_methods_that_do_not_fit_say_so(wrong):
    assert wrong.ask("GET", "/v1/nothing")[1]["error"]["code"] == "unknown_route"
    assert wrong.ask("GET", "/v1/chat/completions")[0] == 405
    assert wrong.ask("DELETE", "/v1/models")[1]["error"]["code"] == "wrong_method"


def raw(running: Lab, data: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", running.port), timeout=20) as client:
        client.sendall(data)
        answer = b""
        while piece := client.recv(65536):
            answer += piece
            if answer.endswith(b"}"):
                break
    return answer


def test_a_body_that_says_that_it_is_huge_is_refused_before_it_comes(wrong):
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n"
    answer = raw(wrong, head)
    assert answer.startswith(b"HTTP/1.1 413")
    assert b"larger than 64 MB" in answer


def test_a_body_that_is_huge_and_does_not_say_so_is_refused_while_it_comes(wrong):
    head = b"POST /api/load HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    answer = raw(wrong, head + b"20000\r\n" + b"x" * 0x20000 + b"\r\n")
    assert answer.startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize(
    "data",
    [
        b"NONSENSE\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nBad Header: x\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: a\x00b\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    ],
)
def test_what_is_no_http_gets_an_answer_in_our_shape(wrong, data):
    answer = raw(wrong, data)
    assert answer.startswith(b"HTTP/1.1 400")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "invalid_http"
    assert wrong.ask("GET", "/health")[1] == {"status": "ok"}


def test_models_are_shown_as_clients_expect_them_and_without_paths(wrong):
    model = wrong.ask("GET", "/v1/models")[1]["data"][0]
    assert {"id": "m", "object": "model", "owned_by": "lmagent", "state": "loaded", "size": 5}.items() <= model.items()
    assert model["loaded_context_length"] == model["context_length"] == 16384
    assert "tool_use" in model["capabilities"]
    assert wrong.ask("GET", "/api/v0/models")[1]["data"][0]["id"] == "m"


@pytest.mark.parametrize("query", ["", "&model=m"])
def test_who_follows_a_log_is_let_go_when_the_server_stops(tmp_path, query):
    with lab(Model("m")) as running:
        running.pool.folder = tmp_path
        running.pool.journal = Journal(tmp_path / "server.log")
        (tmp_path / "server.log").write_text("one\n")
        (tmp_path / "m.log").write_text("one\n")
        with socket.create_connection(("127.0.0.1", running.port), timeout=20) as follower:
            follower.sendall(f"GET /api/logs?follow=1{query} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            told = b""
            while b'{"line":"one"}' not in told:
                told += follower.recv(4096)
            running.server.should_exit = True
            while piece := follower.recv(4096):
                told += piece
        assert told.endswith(b"0\r\n\r\n")


def test_models_are_loaded_unloaded_and_listed_and_logs_followed(tmp_path):
    with lab(Model("m", state="unloaded")) as running:
        running.pool.folder = tmp_path
        (tmp_path / "m.log").write_text("one\ntwo\n")
        assert running.ask("GET", "/api/ps")[1] == {"models": []}
        assert running.ask("POST", "/api/load", {"model": "m"})[1]["state"] == "ready"
        assert [model["name"] for model in running.ask("GET", "/api/ps")[1]["models"]] == ["m"]
        assert running.ask("POST", "/api/unload", {"model": "m"})[1]["state"] == "unloaded"
        assert running.ask("POST", "/api/load", {})[1]["error"]["param"] == "model"
        options = {"context": 4096, "gpu_layers": 8, "flash_attention": "on", "ttl": 60}
        assert running.ask("POST", "/api/load", {"model": "m", **options})[0] == 200
        assert running.pool.options == LoadOptions(**options)
        status, refused, *_ = running.ask("POST", "/api/load", {"model": "m", "gpu_layers": "many"})
        assert (status, refused["error"]["param"]) == (400, "gpu_layers")
        assert running.ask("GET", "/api/logs?model=m")[1] == {"lines": ["one", "two"]}
        with socket.create_connection(("127.0.0.1", running.port), timeout=20) as follower:
            follower.sendall(b"GET /api/logs?model=m&follow=1 HTTP/1.1\r\nHost: localhost\r\n\r\n")
            told = b""
            while b"two" not in told:
                told += follower.recv(4096)
            with (tmp_path / "m.log").open("a") as log:
                log.write("three\n")
            while b'{"line":"three"}' not in told:
                told += follower.recv(4096)
