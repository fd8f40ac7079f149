"""Answers as values of a type that the program gives."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from typing import TypedDict

import msgspec
import pydantic
import pytest

from lmagent import ConfigError, RunFailed, tool
from lmagent.python.answers import AnswerType, Misfit, json_in
from lmagent.testing import call, say


class Line(msgspec.Struct):
    item: str
    price: float


class Invoice(msgspec.Struct):
    lines: list[Line]
    total: float


@dataclass
class Point:
    x: int
    y: int = 0


class Named(TypedDict):
    name: str


class Person(pydantic.BaseModel):
    name: str = pydantic.Field(description="the whole name")
    age: int = pydantic.Field(ge=0)


@tool(effect="read")
def price(item: str) -> float:
    """Return the price of an item."""
    return 5.0


@pytest.mark.parametrize(
    ("wanted", "text", "value"),
    [
        (Invoice, '{"lines": [{"item": "lamp", "price": 5}], "total": 5}', Invoice([Line("lamp", 5.0)], 5.0)),
        (Point, '```json\n{"x": 1}\n```', Point(1)),
        (Named, 'Here it is:\n\n{"name": "Ada"}\n\nAnything else?', {"name": "Ada"}),
        (Person, '{"name": "Ada", "age": 36}', Person(name="Ada", age=36)),
        (list[int], "[1, 2]", [1, 2]),
        (int, "7", 7),
    ],
)
def test_the_answer_is_a_value_of_the_type_that_was_given(agent_with, wanted, text, value):
    result = agent_with([say(text)]).run_sync("Answer", answer=wanted)
    assert (result.status, result.answer) == ("done", value)
    asked = str(agent_with.server.chats[0].messages[-1]["content"])
    assert "only JSON that follows this JSON schema" in asked


def test_tools_can_be_used_before_the_answer(agent_with):
    answer = '{"lines": [{"item": "lamp", "price": 5.0}], "total": 5.0}'
    agent = agent_with([call("price", item="lamp"), say(answer)], tools=[price])
    assert agent.run_sync("Bill me a lamp", answer=Invoice).answer.total == 5.0
    assert all("response_format" not in chat.fields for chat in agent_with.server.chats)


def test_an_answer_that_does_not_fit_is_asked_for_again_and_the_server_enforces_the_schema(agent_with):
    agent = agent_with([say('{"total": "five"}'), say('{"lines": [], "total": 5}')])
    result = agent.run_sync("Bill", answer=Invoice)
    assert (result.answer, result.turn, result.steps) == (Invoice([], 5.0), 1, 2)
    again = agent_with.server.chats[1].fields
    for fault in ("'lines' is a required property", "$.total: 'five' is not of type 'number'"):
        assert fault in again["messages"][-1]["content"]
    assert again["response_format"]["json_schema"]["schema"]["required"] == ["lines", "total"]


def test_a_second_misfit_is_a_clear_error_and_the_text_is_not_lost(agent_with):
    result = agent_with([say("Five euros."), say("I said: five.")]).run_sync("Bill", answer=Invoice)
    assert (result.status, result.text) == ("error", "I said: five.")
    with pytest.raises(
        RunFailed, match="the answer is no Invoice, nor was the one before it: it is not JSON"
    ) as failed:
        _ = result.answer
    assert failed.value.result.text == "I said: five."


def test_the_faults_of_a_pydantic_model_reach_the_model(agent_with):
    agent = agent_with([say('{"name": "Ada", "age": -1}'), say('{"name": "Ada", "age": 1}')])
    assert agent.run_sync("Who?", answer=Person).answer.age == 1
    again = str(agent_with.server.chats[1].messages[-1]["content"])
    assert "age: Input should be greater than or equal to 0" in again
    assert "the whole name" in str(agent_with.server.chats[0].messages[-1])


def test_a_model_that_is_blocked_is_not_pressed_for_an_answer(agent_with):
    result = agent_with([say("BLOCKED: there is no order")]).run_sync("Bill", answer=Invoice)
    assert (result.status, result.reason) == ("blocked", "there is no order")
    with pytest.raises(RunFailed, match="blocked: there is no order"):
        _ = result.answer


def test_the_next_turn_of_a_session_is_free_again(agent_with):
    agent = agent_with([say('{"x": 1}'), say("In words: one.")])
    session = agent.run_sync("Where?", answer=Point).session
    result = agent.run_sync("In words?", session=session)
    assert (result.text, result.answer) == ("In words: one.", None)


def test_a_type_that_a_model_cannot_be_asked_for_is_refused_at_once(agent_with):
    with pytest.raises(ConfigError, match="cannot be asked for an answer of type complex"):
        agent_with([]).run_sync("hi", answer=complex)


def test_the_schema_has_the_type_itself_at_the_top():
    class Tree(msgspec.Struct):
        name: str
        below: list[Tree] = []

    globals()["Tree"] = Tree
    assert AnswerType(Invoice).schema["type"] == "object"
    assert set(AnswerType(Invoice).schema["$defs"]) == {"Line"}
    assert "$defs" not in AnswerType(Point).schema
    tree = AnswerType(Tree).schema
    assert tree["type"] == "object"
    assert set(tree["$defs"]) == {"Tree"}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"a": "{"}', '{"a": "{"}'),
        ('I think {x} is\n```\n{"a": 1}\n```\nor so', '{"a": 1}'),
        ('So: {"a": [1]}. Good?', '{"a": [1]}'),
        ("It is [1] and {2}", "It is [1] and {2}"),
        ('"a [b] c"', '"a [b] c"'),
        ("", ""),
    ],
)
def test_the_json_of_an_answer_is_found_between_words(text, found):
    assert json_in(text) == found


@pytest.mark.parametrize("text", ["", "{", "null", '{"x": 1e999}', "[" * 100_000, '{"x": "\\ud800"}'])
def test_a_text_that_is_no_answer_is_a_misfit_and_nothing_else(text):
    with pytest.raises(Misfit):
        AnswerType(Point).read(text)
    with pytest.raises(Misfit):
        AnswerType(Person).read(text)


def test_pydantic_is_not_imported_for_other_types():
    code = (
        "import sys\nfrom dataclasses import dataclass\nfrom lmagent.python.answers import AnswerType\n"
        "@dataclass\nclass P:\n    x: int\n"
        "AnswerType(P).read('{\"x\": 1}')\nassert 'pydantic' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
