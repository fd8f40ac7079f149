"""Calls put together from pieces that servers label badly: none is lost, none runs with what is not its own."""

import json

import pytest

from lmagent.core.model import ToolSpec
from lmagent.providers.calls import CallAssembler
from lmagent.providers.formats.base import FoundCall

A, B = '{"path":"a"}', '{"path":"b"}'
TEXT = {"type": "string"}


def spec(name: str, required: list[str], **properties: object) -> ToolSpec:
    return ToolSpec(name, name, {"type": "object", "properties": properties, "required": required})


TOOLS = (
    spec("read", ["path"], path=TEXT, limit={"type": "integer"}),
    spec("ls", [], path=TEXT),
    spec("git_status", []),
    spec("git_add", ["paths"], paths={"type": "array", "items": TEXT}),
)


def piece(name: str | None = None, arguments: object = None, index: int | None = None, id: str | None = None):
    function = {"name": name, "arguments": arguments}
    return {"function": {key: value for key, value in function.items() if value is not None}, "index": index, "id": id}


def put(*pieces: dict[str, object], cut: bool = False, finished: bool = True, tools=TOOLS) -> list[FoundCall]:
    assembler = CallAssembler(tools)
    for entry in pieces:
        assembler.feed([entry])
    return assembler.finish((), cut=cut, finished=finished)


def found(*pieces: dict[str, object], **how: bool) -> list[tuple[str, str]]:
    return [(made.name, made.arguments) for made in put(*pieces, **how)]


def streamed(arguments: str, index: int | None = 0, id: str | None = None) -> list[dict[str, object]]:
    half = len(arguments) // 2
    return [piece(None, arguments[:half], index, id), piece(None, arguments[half:], index, id)]


@pytest.mark.parametrize("index", [0, None])
def test_a_name_behind_a_whole_call_begins_another_though_place_and_id_are_the_same(index):
    head = piece("read", "", index)
    assert found(head, *streamed(A, index), head, *streamed(B, index)) == [("read", A), ("read", B)]


def test_a_name_that_is_repeated_behind_a_whole_call_with_nothing_to_follow_is_no_call():
    assert found(piece("read", A, 0), piece("read", "", 0)) == [("read", A)]
    assert found(piece("read", A, 0, "x"), piece("read", "", 0, "x"), piece("read", "{}", 0, "x")) == [("read", A)]


def test_two_names_of_tools_are_two_calls_and_two_parts_of_a_name_are_one():
    assert found(piece("git_status", "", 0), piece("ls", "", 0)) == [("git_status", "{}"), ("ls", "{}")]
    assert found(piece("git_", "", 0), piece("status", "", 0)) == [("git_status", "{}")]
    assert found(piece("git", "", 0), piece("git_status", "", 0)) == [("git_status", "{}")]


def test_a_call_that_comes_without_a_name_behind_a_whole_one_is_one_of_the_same_tool():
    assert found(piece("read", A, 0), piece(None, B, 0)) == [("read", A), ("read", B)]
    assert found(piece("read", A, 0), piece(None, "{}", 0)) == [("read", A)]


@pytest.mark.parametrize("first", ["{}", " {} ", {}])
@pytest.mark.parametrize("id", ["x", None])
def test_an_empty_object_before_the_real_arguments_is_not_run(first, id):
    assert found(piece("ls", first, 0, "x"), *streamed(A, 0, id)) == [("ls", A)]


def test_an_empty_object_is_the_arguments_where_another_call_follows():
    assert found(piece("ls", "{}", 0), piece("ls", A, 0)) == [("ls", "{}"), ("ls", A)]


@pytest.mark.parametrize("id", ["x", None])
def test_calls_that_share_an_id_are_told_apart_by_index(id):
    heads = piece("read", "", 0, "x"), piece("read", "", 1, "x")
    (a, a2), (b, b2) = streamed(A, 0, id), streamed(B, 1, id)
    assert found(*heads, a, b, b2, a2) == [("read", A), ("read", B)]


def test_a_call_without_arguments_in_a_stream_without_an_end_runs_only_if_it_takes_none():
    for name, truncated in (("git_status", False), ("ls", True), ("read", True), ("unheard_of", True)):
        (made,) = put(piece(name, "", 0), finished=False)
        assert made.truncated is truncated, name
        assert made.arguments == ("" if truncated else "{}")
        (made,) = put(piece(name, "", 0))
        assert (made.truncated, made.arguments) == (False, "{}")


@pytest.mark.parametrize("nothing", ["null", "[]", [], '""', '"{}"'])
def test_nothing_in_another_form_is_no_arguments_for_a_tool_that_needs_none(nothing):
    assert found(piece("ls", nothing, 0)) == [("ls", "{}")]
    (kept,) = found(piece("read", nothing, 0))
    assert kept[1] != "{}", "it needs some, so the model is told"


def test_arguments_that_are_a_text_of_a_text_are_taken_if_they_then_fit():
    assert found(piece("read", json.dumps(A), 0)) == [("read", A)]
    assert found(piece("git_add", json.dumps('{"paths": "a"}'), 0)) == [("git_add", '{"paths":["a"]}')]
    for kept in (json.dumps('{"limit": 3}'), json.dumps('{"path": "a"'), "[1]", '"a"', "7"):
        assert found(piece("read", kept, 0)) == [("read", kept)]
    assert found(piece("unheard_of", json.dumps(A), 0)) == [("unheard_of", json.dumps(A))]
