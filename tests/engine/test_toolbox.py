import msgspec
import pytest
from kit import World
from msgspec.structs import replace

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
    return Toolbox(
        [
            Tool(
                "look",
                "look at it",
                Arguments,
                "read",
                nothing,
                renames={"file": "path", "why": ""},
                implied={"mode": ("look",)},
            )
        ]
    )


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
        ('{"path": "a", "limit": "7", "names": "[\\"one\\"]"}', Arguments("a", 7, ["one"])),
        ('{"path": 5}', Arguments("5")),
        ('{"path": true}', Arguments("true")),
        ('{"path": ["a"]}', Arguments("a")),
        ('{"File": "a"}', Arguments("a")),
        ('{"path": "a", "file": "a", "unknown": null, "why": "to see"}', Arguments("a")),
        ('{"path": "a", "mode": "Look"}', Arguments("a")),
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
        '{"name": "look", "arguments": {"path": "a"}, "limit": 7}',
        '{"tool": "look", "args": "{\'path\': \'a\', \'limit\': 7,}"}',
    ],
)
def test_a_call_through_use_tool_is_understood_with_its_arguments_as_text_or_beside_the_name(raw):
    assert toolbox().resolve(ToolCall("c", "use_tool", raw)).arguments == Arguments("a", 7)


@pytest.mark.parametrize(
    "raw",
    [
        "{}",
        '{"name": 7}',
        '{"name": "look", "arguments": "{"}',
        '{"name": "look", "arguments": "[1]"}',
        '{"name": "look", "arguments": {"path": "a"}, "path": "b"}',
    ],
)
def test_a_call_through_use_tool_that_names_none_or_holds_no_object_is_refused(raw):
    with pytest.raises(ToolError, match="use_tool needs"):
        toolbox().resolve(ToolCall("c", "use_tool", raw))


@pytest.mark.parametrize("raw", ['{"limit": 1}', '{"path": {}}', '{"path": "a", "limit": "many"}', '{"path": null}'])
def test_what_does_not_fit_is_refused_with_the_schema(raw):
    with pytest.raises(ToolError, match="do not fit look") as refusal:
        resolve(raw)
    assert '"required":["path"]' in refusal.value.message


@pytest.mark.parametrize(
    ("raw", "named"),
    [
        ('{"path": "a", "unknown": 1}', "'unknown'"),
        ('{"path": "a", "mode": "burn"}', "'mode'"),
        ('{"path": "a", "mode": "burn", "unknown": false}', "'mode' and 'unknown'"),
        ('{"path": "a", "file": "b"}', "'file'"),
    ],
)
def test_an_argument_that_the_tool_does_not_have_is_refused_by_name_with_those_it_has(raw, named):
    with pytest.raises(ToolError, match=f"look has no argument {named}") as refusal:
        resolve(raw)
    assert "It takes: path, limit?, names?." in refusal.value.message


def test_a_tool_from_outside_judges_its_arguments_itself_unless_its_schema_is_closed():
    schema = {"type": "object", "properties": {"count": {"type": "integer"}}}
    far = Tool("far", "", schema, "read", nothing)
    assert Toolbox([far]).resolve(ToolCall("c", "far", '{"count": "3", "x": 1}')).arguments == {"count": 3, "x": 1}
    closed = Tool("far", "", {**schema, "additionalProperties": False}, "read", nothing)
    with pytest.raises(ToolError, match="far has no argument 'x'"):
        Toolbox([closed]).resolve(ToolCall("c", "far", '{"count": 3, "x": 1}'))


@pytest.mark.parametrize("name", ["look", "Look", "functions.look", "lookAt", "look-at"])
def test_a_tool_is_known_however_its_name_is_spelled(name):
    box = Toolbox([Tool("look", "", Arguments, "read", nothing, aliases=("look_at",))])
    assert box.resolve(ToolCall("c", name, '{"path": "a"}')).tool.name == "look"


def test_an_unknown_tool_is_answered_with_what_can_be_called_and_where_the_rest_is():
    deferred = Tool("late", "", Arguments, "read", nothing, deferred=True)
    with pytest.raises(ToolError) as refusal:
        Toolbox([*toolbox(), deferred]).resolve(ToolCall("c", "fly", "{}"))
    assert refusal.value.message.endswith("Available: look, use_tool (for those listed under <tools>).")


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


def test_the_catalogue_gives_signatures_in_one_notation_whatever_the_window():
    box = World().toolbox()
    assert [spec.name for spec in box.specs({"read", "late"})] == ["read", "use_tool"]
    catalogue = box.catalogue({"read"})
    assert "- write(path, size?): write it" in catalogue
    assert "- read(" not in catalogue
    assert '"type"' not in catalogue
    rare = replace(box.get("write"), unlisted=("size",))
    assert "- write(path): write it" in Toolbox([rare]).catalogue(())
    assert box.catalogue({"read", "write", "late"}) == ""
