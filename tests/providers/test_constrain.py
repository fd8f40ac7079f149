"""Calls that the server makes the model write: the schema, and the reply read back."""

import json

import jsonschema
import pytest
from provider_loopback import Answer, ask, delta, request, sse

from lmagent.core.messages import Message, Text, Thinking, user
from lmagent.core.model import ModelReply, ModelRequest, ToolSpec, Usage
from lmagent.providers import jsontext
from lmagent.providers.constrain import schema_for, understood
from lmagent.providers.encode import BodyEncoder

READ = ToolSpec("read", "Read.", {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]})
MANY = ToolSpec(
    "many",
    "Many.",
    {"type": "object", "properties": {"paths": {"type": "array", "items": {"type": "string"}}}, "required": []},
)


def reply(text: str, finish: str = "stop", thought: str = "") -> ModelReply:
    parts = ((Thinking(thought),) if thought else ()) + (Text(text),)
    return understood(ModelReply(Message("assistant", parts), finish, Usage()), (READ, MANY))  # type: ignore[arg-type]


def called(text: str) -> list[tuple[str, object]]:
    made = reply(text)
    assert made.finish_reason == ("tool_calls" if made.message.tool_calls else "stop")
    return [(call.name, jsontext.loads(call.arguments.encode())) for call in made.message.tool_calls]


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


@pytest.mark.parametrize("text", ["Just words.", '{"tool": "unheard"}', '{"answer": 5}', "[1]", "{"])
def test_a_server_that_did_not_enforce_it_gets_its_words_taken_as_they_are(text):
    assert reply(text).message.text == text
    assert reply(text).message.tool_calls == ()


ONE = '{"tool": "read", "arguments": {"path": "a"}}'


@pytest.mark.parametrize(
    "text",
    [
        f"```json\n{ONE}\n```",
        f"I will read it:\n```json\n{ONE}\n```",
        f"Sure:\n{ONE}",
        f"{ONE}\n\nI wait for the result.",
        '<tool_call>\n{"name": "read", "arguments": {"path": "a"}}\n</tool_call>',
        "<tool_call>\n<function=read>\n<parameter=path>\na\n</parameter>\n</function>\n</tool_call>",
        '{"name": "read", "arguments": {"path": "a"}}',
        '{"tool": "read", "parameters": {"path": "a"}}',
        '[TOOL_CALLS]read[ARGS]{"path": "a"}',
        f"<think>hm</think>{ONE}",
    ],
)
def test_a_call_in_another_form_than_the_one_asked_for_is_one_all_the_same(text):
    assert called(text) == [("read", {"path": "a"})]
    assert "{" not in reply(text).message.text


def test_several_objects_are_several_calls_in_their_order():
    two = [("read", {"path": "a"}), ("many", {"paths": ["b"]})]
    assert called(f'{ONE}\n{{"tool": "many", "arguments": {{"paths": ["b"]}}}}') == two
    assert called(f'```json\n{ONE}\n```\n```json\n{{"tool": "many", "arguments": {{"paths": ["b"]}}}}\n```') == two
    both = reply(f'{ONE}{{"answer": "It is read."}}')
    assert (len(both.message.tool_calls), both.message.text) == (1, "It is read.")


@pytest.mark.parametrize(
    "text",
    [
        f"One would send {ONE}",
        f"The form is `{ONE}`",
        f'He wrote "{ONE}"',
        f"You get {ONE} from it, and more.",
        'Sure: {"tool": "read", "arguments": {"wild": 1}}',
        'Sure: {"tool": "rm", "arguments": {}}',
        f'Sure: {{"tool": "many", "arguments": {{"paths": ["x {ONE}',
    ],
)
def test_an_object_that_is_part_of_a_sentence_or_no_call_of_a_tool_stays_text(text):
    assert called(text) == []
    assert reply(text).message.text == text


def test_a_call_without_arguments_is_one_and_a_tool_that_needs_some_says_so():
    assert called('{"tool": "many"}') == [("many", {})]
    assert called('{"thought": null, "tool": "read"}') == [("read", {})]


def test_an_answer_that_tells_of_calls_and_tags_is_an_answer():
    for told in (f"Send\n\n<tool_call>\n{ONE}\n</tool_call>", "It ends with </think>", ONE):
        assert reply(json.dumps({"answer": told})).message.parts == (Text(told),)


def test_a_closing_thought_tag_in_the_arguments_is_no_end_of_a_thought():
    text = '{"tool":"read","arguments":{"path":"{{ x }}</think>"}}'
    for written in (text, f"<think>hm</think>{text}"):
        run = ask(Answer([sse(delta("stop", content=written))]), asked=request(constrain=True))
        (call,) = run.reply.message.tool_calls
        assert jsontext.loads(call.arguments.encode()) == {"path": "{{ x }}</think>"}


def test_half_a_character_in_an_answer_can_be_stored():
    assert reply('{"answer": "a\\ud83d b"}').message.text == "a\ufffd b"


def test_a_call_in_another_form_that_the_limit_cut_off_is_never_run():
    cut = reply('<tool_call>\n{"name": "read", "arguments": {"path": "a', "length")
    (call,) = cut.message.tool_calls
    assert (call.name, cut.truncated_calls, cut.finish_reason) == ("read", {call.id}, "length")


def test_a_call_that_the_limit_cut_off_is_never_run():
    cut = reply('{"tool": "read", "arguments": {"path": "half', "length")
    (call,) = cut.message.tool_calls
    assert call.name == "read"
    assert cut.truncated_calls == {call.id}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('{"answer": "It \\"is\\" ha', 'It "is" ha'),
        ('{"answer": "a\\', "a"),
        ('{"answer": "a\\u00e', "a"),
        ('{"answer": "a\\ud83d', "a\ufffd"),
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
