"""Calls that the server makes the model write: the schema, and the reply read back."""

import jsonschema
import pytest

from lmagent.core.messages import Message, Text, Thinking, user
from lmagent.core.model import ModelRequest, Reply, ToolSpec, Usage
from lmagent.providers import jsontext
from lmagent.providers.constrain import schema_for, understood
from lmagent.providers.encode import BodyEncoder

READ = ToolSpec("read", "Read.", {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]})
MANY = ToolSpec(
    "many",
    "Many.",
    {"type": "object", "properties": {"paths": {"type": "array", "items": {"type": "string"}}}, "required": []},
)


def reply(text: str, finish: str = "stop", thought: str = "") -> Reply:
    parts = ((Thinking(thought),) if thought else ()) + (Text(text),)
    return understood(Reply(Message("assistant", parts), finish, Usage()))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "valid"),
    [
        ({"tool": "read", "arguments": {"path": "a"}}, True),
        ({"tool": "many", "arguments": {}}, True),
        ({"answer": "done"}, True),
        ({"tool": "read", "arguments": {}}, False),
        ({"tool": "read", "arguments": {"path": "a", "wild": 1}}, False),
        ({"tool": "rm", "arguments": {}}, False),
        ({"tool": "read", "arguments": {"path": "a"}, "answer": "x"}, False),
        ({}, False),
        ("text", False),
    ],
)
def test_the_schema_admits_valid_calls_and_answers_only(value, valid):
    assert jsonschema.Draft202012Validator(schema_for((READ, MANY), think=False)).is_valid(value) == valid


def test_a_model_that_thinks_has_room_for_it_before_the_call():
    schema = schema_for((READ,), think=True)
    assert all(next(iter(branch["properties"])) == "thought" for branch in schema["anyOf"])


def test_a_call_an_answer_and_a_thought_are_read_back():
    called = reply('{"thought": "hm", "tool": "read", "arguments": {"path": "ä"}}')
    (call,) = called.message.tool_calls
    assert (call.name, jsontext.loads(call.arguments.encode())) == ("read", {"path": "ä"})
    assert called.finish_reason == "tool_calls"
    assert called.message.parts[0] == Thinking("hm")
    assert reply(' {"answer": "It is\\nwritten."} ').message.text == "It is\nwritten."


def test_thoughts_that_came_beside_it_are_kept():
    assert reply('{"answer": "x"}', thought="apart").message.parts == (Thinking("apart"), Text("x"))


@pytest.mark.parametrize("text", ["Just words.", '{"tool": "read"}', '{"answer": 5}', "[1]", "{"])
def test_a_server_that_did_not_enforce_it_gets_its_words_taken_as_they_are(text):
    assert reply(text).message.text == text
    assert reply(text).message.tool_calls == ()


def test_a_call_that_the_limit_cut_off_is_never_run():
    cut = reply('{"tool": "write", "arguments": {"path": "a", "content": "half', "length")
    (call,) = cut.message.tool_calls
    assert call.name == "write"
    assert cut.truncated_calls == {call.id}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('{"answer": "It \\"is\\" ha', 'It "is" ha'),
        ('{"answer": "a\\', "a"),
        ('{"answer": "a\\u00e', "a"),
        ('{"answer": "', ""),
    ],
)
def test_an_answer_that_the_limit_cut_off_is_shown_as_far_as_it_goes(text, shown):
    cut = reply(text, "length")
    assert (cut.message.text, cut.finish_reason) == (shown, "length")


def test_the_tools_stay_in_the_request_so_that_the_prompt_stays_the_same():
    plain = ModelRequest("m", "s", (READ,), (user("hi"),))
    body = jsontext.loads(BodyEncoder().encode(ModelRequest("m", "s", (READ,), (user("hi"),), constrain=True)))
    assert body["tools"] == jsontext.loads(BodyEncoder().encode(plain))["tools"]
    assert body["tool_choice"] == "none"
    assert body["response_format"]["json_schema"]["schema"] == schema_for((READ,), think=False)
