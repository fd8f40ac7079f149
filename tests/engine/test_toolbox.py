import msgspec
import pytest
from kit import World

from lmagent.core.errors import ToolError
from lmagent.core.messages import ToolCall
from lmagent.core.tool import Tool, ToolOutput
from lmagent.engine.toolbox import Toolbox


class Arguments(msgspec.Struct):
    path: str
    limit: int = 5
    names: list[str] = []


async def nothing(arguments, context):
    return ToolOutput(arguments.path)


def toolbox() -> Toolbox:
    return Toolbox([Tool("look", "look at it", Arguments, "read", nothing, renames={"file": "path"})])


def resolve(arguments: str):
    return toolbox().resolve(ToolCall("c", "look", arguments)).arguments


@pytest.mark.parametrize(
    ("raw", "wanted"),
    [
        ('{"path": "a"}', Arguments("a")),
        ('{"file": "a"}', Arguments("a")),
        ('{"path": "a", "limit": "7"}', Arguments("a", 7)),
        ('{"path": "a", "limit": null}', Arguments("a")),
        ('{"path": "a", "names": "one"}', Arguments("a", 5, ["one"])),
        ('{"path": "a", "unknown": 1}', Arguments("a")),
    ],
)
def test_what_models_often_write_is_understood(raw, wanted):
    assert resolve(raw) == wanted


@pytest.mark.parametrize(
    "raw",
    [
        '{"name": "look", "arguments": {"path": "a", "limit": 7}}',
        '{"name": "look", "arguments": "{\\"path\\": \\"a\\", \\"limit\\": 7}"}',
        '{"name": "look", "path": "a", "limit": 7}',
        '{"name": "look", "arguments": null, "path": "a", "limit": 7}',
    ],
)
def test_a_call_through_use_tool_is_understood_with_its_arguments_as_text_or_beside_the_name(raw):
    assert toolbox().resolve(ToolCall("c", "use_tool", raw)).arguments == Arguments("a", 7)


@pytest.mark.parametrize(
    "raw",
    ["{}", '{"name": 7}', '{"name": "look", "arguments": "{"}', '{"name": "look", "arguments": "[1]"}'],
)
def test_a_call_through_use_tool_that_names_none_or_holds_no_object_is_refused(raw):
    with pytest.raises(ToolError, match="use_tool needs"):
        toolbox().resolve(ToolCall("c", "use_tool", raw))


@pytest.mark.parametrize("raw", ['{"limit": 1}', '{"path": 5}', '{"path": "a", "limit": "many"}', '{"path": null}'])
def test_what_does_not_fit_is_refused_with_the_schema(raw):
    with pytest.raises(ToolError, match="do not fit look") as refusal:
        resolve(raw)
    assert '"required":["path"]' in refusal.value.message


def test_the_name_that_is_given_wins_over_the_renamed_one():
    assert resolve('{"path": "a", "file": "b"}').path == "a"


def test_a_second_tool_of_the_same_name_is_refused():
    with pytest.raises(ValueError, match="registered already"):
        toolbox().add(Tool("use_tool", "x", Arguments, "read", nothing)) or toolbox().add(
            Tool("look", "x", Arguments, "read", nothing)
        )


def test_the_catalogue_lists_what_is_not_in_the_block():
    box = World().toolbox()
    assert "late" in box.catalogue(["read", "write"])
    assert [spec.name for spec in box.specs()] == ["read", "write", "use_tool"]


def test_no_arguments_at_all_are_an_empty_object():
    with pytest.raises(ToolError, match="missing required field `path`"):
        resolve("")


def test_a_schema_is_flat_and_short():
    schema = toolbox().specs()[0].parameters
    assert schema == {
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "limit": {"type": "integer"},
            "names": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["path"],
    }


def test_a_small_block_leaves_the_rest_to_the_catalogue_which_names_arguments_only():
    box = World().toolbox()
    assert [spec.name for spec in box.specs({"read", "late"})] == ["read", "use_tool"]
    terse = box.catalogue({"read"}, terse=True)
    assert "- write(path, size?): write it" in terse
    assert "- read(" not in terse
    assert '"type"' not in terse
    assert '"type"' in box.catalogue({"read"})
    assert box.catalogue({"read", "write", "late"}) == ""
