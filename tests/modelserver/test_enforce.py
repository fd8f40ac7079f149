"""A call that is required comes, whatever the model would rather say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress

import jsonschema
import pytest
from router_kit import HELLO, Lab, Model, calling_gguf, chunks, joined_calls, lab, tool
from testkit.engine import EngineServer

from lmagent.modelserver.http.enforce import calls_in, calls_schema

NESTED = {
    "type": "object",
    "properties": {
        "node": {"$ref": "#/$defs/node"},
        "kind": {"enum": ["a", "b"]},
    },
    "required": ["node", "kind"],
    "$defs": {
        "node": {
            "type": "object",
            "properties": {"label": {"type": "string", "maxLength": 6}, "odd": {"type": "boolean"}},
            "required": ["label", "odd"],
        }
    },
}


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    for package in ("xllamacpp", "gguf"):
        pytest.importorskip(package, reason=f"the real engine was NOT tested: the package {package} is missing")
    with EngineServer(calling_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf"), context=8192) as server:
        with lab(Model("tiny", server.url)) as running:
            yield running


def valid(name: str, arguments: str, tools: list) -> bool:
    schemas = {offered["function"]["name"]: offered["function"]["parameters"] for offered in tools}
    with suppress(ValueError, jsonschema.ValidationError, KeyError):
        jsonschema.validate(json.loads(arguments), schemas[name])
        return True
    return False


@pytest.mark.engine
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "ls"}}])
def test_a_model_of_random_weights_calls_each_time_that_it_has_to(engine, stream, choice):
    tools = [tool("read"), tool("ls"), tool("walk", NESTED)]
    seen = set()
    for seed in range(25):
        fields = {"tools": tools, "tool_choice": choice, "max_tokens": 1500, "seed": seed, "temperature": 1.0}
        status, answer, _ = engine.chat(model="tiny", stream=stream, **fields)
        assert status == 200, answer
        if stream:
            events = chunks(answer)
            (name, arguments), *more = joined_calls(events)
            finish = [choice["finish_reason"] for event in events for choice in event["choices"]][-1]
            assert not any(choice["delta"].get("content") for event in events for choice in event["choices"])
        else:
            message, finish = answer["choices"][0]["message"], answer["choices"][0]["finish_reason"]
            assert message["content"] is None
            (name, arguments), *more = [tuple(call["function"].values()) for call in message["tool_calls"]]
        assert (finish, more) == ("tool_calls", [])
        assert valid(name, arguments, tools), (name, arguments)
        seen.add(name)
    assert seen == ({"ls"} if isinstance(choice, dict) else {"read", "ls", "walk"})


@pytest.mark.engine
def test_several_calls_come_only_where_they_are_allowed(engine):
    tools = [tool("read"), tool("ls")]
    counts = []
    for seed in range(20):
        fields = {"tools": tools, "tool_choice": "required", "parallel_tool_calls": True, "max_tokens": 3000}
        _, answer, _ = engine.chat(model="tiny", seed=seed, stream=True, **fields)
        calls = joined_calls(chunks(answer))
        assert all(valid(name, arguments, tools) for name, arguments in calls)
        counts.append(len(calls))
    assert max(counts) > 1
    assert min(counts) >= 1


@pytest.mark.engine
def test_a_reply_that_the_limit_cuts_off_has_no_call(engine):
    fields = {"model": "tiny", "tools": [tool("read")], "tool_choice": "required", "max_tokens": 4, "seed": 1}
    _, answer, _ = engine.chat(**fields)
    assert answer["choices"][0]["finish_reason"] == "length"
    assert "tool_calls" not in answer["choices"][0]["message"]
    _, streamed, _ = engine.chat(stream=True, **fields)
    assert chunks(streamed)[-2]["choices"][0]["finish_reason"] == "length" or "length" in streamed


@pytest.mark.engine
def test_a_tool_without_arguments_gets_none(engine):
    bare = {"type": "function", "function": {"name": "now"}}
    _, answer, _ = engine.chat(model="tiny", tools=[bare], tool_choice="required", max_tokens=300)
    (call,) = answer["choices"][0]["message"]["tool_calls"]
    assert call["function"] == {"name": "now", "arguments": "{}"}


@pytest.mark.engine
@pytest.mark.parametrize("stream", [False, True])
def test_a_schema_of_an_answer_is_kept_each_time(engine, stream):
    schema = {**NESTED, "additionalProperties": False}
    form = {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": schema}}
    for seed in range(25):
        _, answer, _ = engine.chat(response_format=form, seed=seed, max_tokens=1500, stream=stream)
        if stream:
            deltas = [choice["delta"] for event in chunks(answer) for choice in event["choices"]]
            text = "".join(delta.get("content") or "" for delta in deltas)
        else:
            text = answer["choices"][0]["message"]["content"]
        jsonschema.validate(json.loads(text), schema)


@pytest.mark.engine
@pytest.mark.parametrize("stream", [False, True])
def test_a_schema_that_the_engine_refuses_is_a_400_with_its_reason(engine, stream):
    wrong = tool("read", {"type": "object", "properties": {"path": {"$ref": "#/nowhere"}}})
    status, answer, _ = engine.chat(model="tiny", tools=[wrong], tool_choice="required", stream=stream)
    assert status == 400
    assert "nowhere" in answer["error"]["message"]
    assert answer["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("choice", "tools", "words"),
    [
        ("required", [], "there are no tools"),
        ("always", [tool("read")], "it can be"),
        ({"type": "function", "function": {"name": "rm"}}, [tool("read")], "'rm', which is not among the tools: read"),
        ({"type": "nothing"}, [tool("read")], "has to be"),
        ({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": []}}, [tool("read")], "no tools"),
        ({"type": "allowed_tools", "allowed_tools": "read"}, [tool("read")], "has to be"),
        ({"type": "allowed_tools", "mode": "auto", "tools": 5}, [tool("read")], "has to be"),
    ],
)
def test_a_choice_that_makes_no_sense_is_told(choice, tools, words):
    with lab(Model("m", "http://127.0.0.1:9")) as running:
        status, answer, _ = running.chat(tools=tools, tool_choice=choice)
    assert (status, answer["error"]["param"]) == (400, "tool_choice")
    assert words in answer["error"]["message"]


@pytest.mark.parametrize("depth", [450, 480, 490, 2000])
def test_a_schema_of_any_depth_is_passed_on_or_refused_and_no_failure_of_ours(depth):
    schema = '{"type":"object","properties":{"p":' * depth + '{"type":"string"}' + "}}" * depth
    fields = {"messages": HELLO, "tool_choice": "required", "tools": [tool("a", "SCHEMA")]}
    with lab(Model("m", "http://127.0.0.1:9")) as running:
        raw = json.dumps(fields).replace('"SCHEMA"', schema).encode()
        assert running.ask("POST", "/v1/chat/completions", raw)[0] in (400, 502)


def test_schemas_with_references_to_themselves_move_to_a_place_of_their_own():
    loop = {"type": "object", "properties": {"next": {"$ref": "#"}, "x": {"$ref": "#/$defs/x"}}, "$defs": {"x": {}}}
    schema = calls_schema([{"name": "a", "parameters": loop}, {"name": "b", "parameters": {"type": "object"}}])
    moved = schema["$defs"]["tool0"]
    assert moved["properties"] == {"next": {"$ref": "#/$defs/tool0"}, "x": {"$ref": "#/$defs/tool0/$defs/x"}}
    assert schema["anyOf"][0]["properties"]["arguments"] == {"$ref": "#/$defs/tool0"}


def test_strict_tools_have_all_their_fields_and_others_keep_their_word():
    fields = {"type": "object", "properties": {"a": {"type": "string"}}}
    strict = calls_schema([{"name": "t", "parameters": fields, "strict": True}])["properties"]["arguments"]
    assert (strict["required"], strict["additionalProperties"]) == (["a"], False)
    loose = calls_schema([{"name": "t", "parameters": {**fields, "additionalProperties": True}}])
    assert loose["properties"]["arguments"]["additionalProperties"] is True


def test_calls_are_read_however_their_text_is_written():
    arguments = {"path": 'a "b" \\ {}[] ,', "deep": [{"x": [1, 2.5, None]}, " "], "u": "\u00e9"}
    text = ' [ {"name" : "a\\u0062" ,\n "arguments" : ' + json.dumps(arguments, indent=3) + ' } , {"name":"c",'
    calls = calls_in(text + '"arguments":{ } } ]')
    assert [(call.name, json.loads(call.arguments)) for call in calls] == [("ab", arguments), ("c", {})]
    assert "\n" not in calls[0].arguments
    assert [call.name for call in calls_in(text)] == ["ab"]
