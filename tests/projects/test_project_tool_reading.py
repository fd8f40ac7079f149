"""What files say about their tools: declared, documented or inferred."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tools_kit import AgentFolder

from lmagent.core.errors import ConfigError
from lmagent.core.tool import Tool, ToolContext, ToolOutput
from lmagent.projects.tools import call as calling
from lmagent.projects.tools.javascript import Facts, read_javascript
from lmagent.projects.tools.program import read_manifest
from lmagent.projects.tools.python import read_python
from lmagent.projects.tools.schema import declared_schema, signature
from lmagent.projects.tools.spec import Declared


def js(execute: str, before: str = "", after: str = "") -> Declared:
    """Return the tool of a file with this function, as it is after loading."""
    return read_javascript(Facts("a", "A.", execute), before + execute + after, "tools/a.js")


def inferred(execute: str) -> str:
    found = js(execute, "module.exports = { name: 'a', execute: ", " };")
    assert found.origin == "inferred from its code"
    return signature("a", found.schema)


def wrong(read: Any, *arguments: Any) -> str:
    with pytest.raises(ConfigError) as failure:
        read(*arguments)
    return str(failure.value)


@pytest.mark.parametrize(
    ("execute", "shown"),
    [
        ("() => 1", "a()"),
        ("async (params) => { const { query, limit = 5 } = params; }", "a(query, limit?=5)"),
        ("({ query, limit = 5 }) => 1", "a(query, limit?=5)"),
        (
            "async function ({ a = [], b = -1.5, c = true, d = null } = {}, context) {}",
            "a(a?=[], b?=-1.5, c?=true, d?)",
        ),
        ("async execute({ n }, context) { return n; }", "a(n)"),
        ("p => { const { a: first, b: second = 'x', c: { d } } = p || {}; }", 'a(a, b?="x", c)'),
        ("p => { let a; ({ a } = p); }", "a(a)"),
        ("p => p.city + (p.days ?? 3) + (p.unit || 'C')", "a(city?, days?, unit?)"),
        ("p => { if (p.all) return 1; const { x } = p; }", "a(all?, x)"),
        ("({ a, ...others }) => 1", "a(a, …)"),
        ("p => helper(p)", "a(…)"),
        ("p => { const copy = { ...p }; return p.a; }", "a(a?, …)"),
        ("p => p[key]", "a(…)"),
        ("p => { if (!p) return; const { a } = p; }", "a(a, …)"),
        ("({ limit = defaults.limit }) => 1", "a(limit?)"),
        ("([first]) => 1", "a(…)"),
        ("function () { [native code] }", "a(…)"),
    ],
)
def test_parameters_are_inferred_from_what_the_code_takes(execute: str, shown: str) -> None:
    assert inferred(execute) == shown


def test_a_default_gives_its_type() -> None:
    found = js("({ a = 1, b = '', c = false, d = [], e = {}, f }) => 1")
    kinds = {name: sub.get("type") for name, sub in found.schema["properties"].items()}
    assert kinds == {"a": "number", "b": "string", "c": "boolean", "d": "array", "e": "object", "f": None}
    assert found.schema["additionalProperties"] is False


DOCUMENTED = """
    /** @param {string} text - of another function */
    function helper(text) { return text; }
    /**
     * Looks a forecast up.
     * @param {Object} params
     * @param {string} params.city - where
     * @param {number} [params.days=3] how many days
     * @param {'C'|'F'} [params.unit]
     * @param {string[]} params.kinds
     * @param {?integer} params.hour
     * @returns {Promise<string>}
     */
    """


@pytest.mark.parametrize("head", ["", "const run = ", "module.exports.execute = "])
def test_jsdoc_declares_parameters(head: str) -> None:
    found = js('async function run(params) { const { city, unit = "C" } = params; }', DOCUMENTED + head)
    assert found.origin == "its JSDoc"
    assert found.schema == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "where"},
            "days": {"type": "number", "description": "how many days", "default": 3},
            "unit": {"type": "string", "enum": ["C", "F"], "default": "C"},
            "kinds": {"type": "array", "items": {"type": "string"}},
            "hour": {"type": "integer"},
        },
        "required": ["city", "kinds"],
        "additionalProperties": False,
    }


def test_jsdoc_of_another_function_declares_nothing() -> None:
    assert js("({ city }) => 1", DOCUMENTED + "function other() {}\n").origin == "inferred from its code"


def test_a_text_that_cannot_be_parsed_as_a_function_takes_everything() -> None:
    for hostile in ("[" * 100_000, "(a=>" * 30_000, "a?b:" * 30_000):
        assert signature("a", js(hostile).schema) == "a(…)"


def test_python_hints_become_a_schema() -> None:
    found = read_python(
        b'''
import typing
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Optional

@dataclass
class Point:
    x: float
    label: str = ""

def _helper(): ...

def plot(points: list[Point], kind: Literal["line", "bar"], at: "Point | None" = None, *, n: Optional[int] = None,
         names: dict[str, int] = {}, either: int | str = 1, text: Annotated[str, "the text"] = "",
         any: typing.Any = None,
         flag: bool = False, more: typing.List[str] = []) -> str:
    """Draw points
    on paper.

    The rest is for people.
    """
''',
        "plot",
        "tools/plot.py",
    )
    point = {"type": "object", "required": ["x"], "additionalProperties": False}
    point["properties"] = {"x": {"type": "number"}, "label": {"type": "string"}}
    assert found.description == "Draw points on paper."
    assert found.schema["required"] == ["points", "kind"]
    assert found.schema["properties"] == {
        "points": {"type": "array", "items": point},
        "kind": {"type": "string", "enum": ["line", "bar"]},
        "at": point,
        "n": {"type": "integer"},
        "names": {"type": "object", "default": {}},
        "either": {"anyOf": [{"type": "integer"}, {"type": "string"}], "default": 1},
        "text": {"type": "string", "description": "the text", "default": ""},
        "any": {},
        "flag": {"type": "boolean", "default": False},
        "more": {"type": "array", "items": {"type": "string"}, "default": []},
    }


def test_the_function_of_a_python_file_is_the_marked_the_named_or_the_only_one() -> None:
    two = b"def one() -> str: ...\ndef two() -> str: ...\n"
    assert read_python(two, "two", "a.py").function == "two"
    assert "its functions: one, two" in wrong(read_python, two, "three", "a.py")
    assert read_python(b"def only() -> str: ...", "other", "a.py").function == "only"
    marked = b"from lmagent import tool\ndef one(): ...\n@tool(name='uno', description='One.')\ndef two(): ...\n"
    found = read_python(marked, "any", "a.py")
    assert (found.function, found.name, found.description) == ("two", "uno", "One.")


def test_python_that_cannot_be_a_tool_is_refused_by_name() -> None:
    for source, fault in (
        (b"def a(x): ...", "the parameter 'x' has no type"),
        (b"def a(x: bytes): ...", "the parameter 'x' has the type bytes"),
        (b"def a(x: dict[int, str]): ...", "has the type dict[int, str]"),
        (b"class P: ...\ndef a(x: P): ...", "the class P is no dataclass"),
        (b"from dataclasses import dataclass\n@dataclass\nclass P:\n  p: 'P'\ndef a(x: P): ...", "nested too deep"),
        (b"def a(*x: int): ...", "takes * or / parameters"),
        (b"def a(x: int:", "a.py, line 1, is no valid Python"),
        (b"x = 1", "its functions: none"),
        (b"\0", "is no valid Python"),
    ):
        assert fault in wrong(read_python, source, "a", "a.py")


def test_short_forms_declare_parameters() -> None:
    schema = declared_schema(
        {
            "city": "string - where",
            "days": "integer = 3 - how many days",
            "unit": 'string = "C"',
            "plain": "string = plain words",
            "tags": "string[]?",
            "deep": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "number"}}}},
        },
        "the parameters",
    )
    assert signature("t", schema) == 't(city, days?=3, unit?="C", plain?="plain words", tags?, deep)'
    assert schema["properties"]["city"] == {"type": "string", "description": "where"}
    assert schema["properties"]["tags"] == {"type": "array", "items": {"type": "string"}}
    assert declared_schema({"type": "string", "n": "integer"}, "p")["required"] == ["type", "n"]


@pytest.mark.parametrize(
    ("parameters", "fault"),
    [
        ({"n": "numbr"}, 'n is "numbr", which is no type'),
        ({"n": 5}, "n is 5, which is no type"),
        ({"n": "integer = many"}, "has a default that does not fit: 'many' is not of type 'integer'"),
        (["n"], "are no mapping of names"),
        ({"type": "object", "properties": {"n": {"type": "int"}}}, "properties.n.type: 'int' is not"),
        ({"type": "object", "properties": {"n": {"$ref": "#/x"}}}, "has the key '$ref', which tools here cannot have"),
        ({"type": "object", "properties": {"n": 5}}, "properties.n: 5 is not of type"),
        ({"type": "object", "properties": {}, "required": "n"}, "required: 'n' is not of type 'array'"),
        (
            {"type": "object", "properties": {"n": {"type": "number", "minimum": "1"}}},
            "properties.n.minimum: '1' is not of type 'number'",
        ),
        ({f"n{at}": "string" for at in range(65)}, "are 65, and 64 are taken"),
    ],
)
def test_declarations_that_cannot_be_followed_are_refused(parameters: Any, fault: str) -> None:
    assert fault in wrong(declared_schema, parameters, "the parameters")


def test_manifests_that_cannot_be_followed_are_refused(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools/a.sh").write_text("")
    for manifest, fault in (
        ("{", "is no JSON"),
        ("[]", "is no JSON object"),
        ('{"command": []}', "has no command"),
        ('{"command": ["x"], "args": 1}', "unknown key 'args'"),
        ('{"command": ["./tools/none.sh"]}', "is no file of the project"),
        ('{"command": ["tools/a.sh"]}', "chmod +x tools/a.sh"),
    ):
        assert fault in wrong(read_manifest, manifest.encode(), "tools/a.json", tmp_path)
    found = read_manifest(b'{"command": ["bash", "tools/a.sh", "-v"]}', "tools/a.json", tmp_path)
    assert found.argv == ("bash", str(tmp_path / "tools/a.sh"), "-v")


# --- rows -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def agent(tmp_path: Path) -> AgentFolder:
    return AgentFolder(tmp_path)


async def _run(_: object, __: ToolContext) -> ToolOutput:
    return ToolOutput("built in")


READ = Tool("read", "Read.", {"type": "object", "properties": {}}, "read", _run, aliases=("read_file", "cat"))
EMPTY = "module.exports = { name: 'x', description: 'X.', execute() {} };"


def test_a_row_without_a_file_names_a_built_in_tool(agent: AgentFolder) -> None:
    agent.gets(builtin=(READ,))
    for row in ({"name": "read_file", "path": "./tools/read_file.js"}, {"name": "cat", "path": ""}):
        agent.add("tools/x.js", EMPTY, **row)
    assert agent.found.tools == ()
    assert agent.found.facts == ("read_file: ./tools/read_file.js does not exist, so the built-in tool read is used",)


def test_an_own_tool_beats_another_name_of_a_built_in_tool_and_never_its_name(agent: AgentFolder) -> None:
    agent.gets(builtin=(READ,))
    agent.add("tools/read_file.js", EMPTY)
    assert agent.tool("read_file").effect == "exec"
    for name in ("read", "Read", "use_tool"):
        agent.entries.clear()
        agent.add("tools/x.js", EMPTY, name=name)
        assert f"the name {name} is taken by a built-in tool" in wrong(lambda: agent.found)


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        ({"name": "none", "path": "tools/none.js"}, "its file tools/none.js does not exist"),
        ({"name": "reed", "path": ""}, "no built-in tool is named so\n  → give the `path` of its file, or write read"),
        ({"path": "../x.js"}, "leads out of the folder"),
        ({"path": "/etc/passwd"}, "leads out of the folder"),
        ({"path": "link.js"}, "leads out of"),
        ({"path": "tools"}, "has no manifest beside it"),
        ({"path": "tools/x.ts"}, "is .ts, which is not run"),
        ({"path": "tools/x.bin"}, "has no manifest beside it"),
        ({"path": "tools/large.js"}, "has more than 1 MB"),
        ({"parameters": {"n": "wrong"}}, "`parameters`: n"),
    ],
)
def test_rows_that_cannot_be_followed_are_refused_by_name(
    agent: AgentFolder, row: dict[str, Any], fault: str, tmp_path: Path
) -> None:
    agent.gets(builtin=(READ,))
    for name in ("x.ts", "x.bin"):
        agent.write(f"tools/{name}", "")
    agent.write("tools/large.js", "/*" + "x" * (1 << 20) + "*/")
    (tmp_path / "secret.js").write_text(EMPTY)
    (agent.folder / "link.js").symlink_to(tmp_path / "secret.js")
    agent.add("tools/x.js", EMPTY, **row)
    said = wrong(lambda: agent.found)
    assert fault in said
    assert said.startswith("the tool '")


def test_the_row_decides_about_name_description_and_parameters(agent: AgentFolder) -> None:
    agent.add(
        "tools/x.js",
        "module.exports = { name: 'other', description: 'Long.\x1b[31m \u202e' + 'x', execute: p => f(p) };",
        parameters={"n": "integer"},
    )
    agent.entries.append(agent.entries[0].__class__("y", "tools/x.js", description=" two\nlines  " + "z" * 2000))
    assert agent.tool("x").description == "Long. \\u202ex"
    assert agent.schema("x")["properties"] == {"n": {"type": "integer"}}
    assert agent.found.facts[0] == "x: tools/x.js calls itself other"
    assert agent.tool("y").description.startswith("two lines zzz")
    assert len(agent.tool("y").description) == 1000


COMPUTED = """
const fs = require('fs');
const { tail } = require('./words');
module.exports = Object.assign({}, { name: 'computed', description: ['a', 'b'].join(' ') + tail,
  async execute({ city, days = 3 }, context) { return city; } });
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_a_file_is_loaded_once_in_the_sandbox_until_its_folder_changes(agent: AgentFolder, tmp_path: Path) -> None:
    agent.write("tools/words.js", "exports.tail = '!';")
    agent.gets(kept=tmp_path / "kept")
    agent.add("tools/computed.js", COMPUTED)
    assert agent.tool("computed").description == "a b!"
    assert agent.found.facts == ("computed(city, days?=3): inferred from its code (tools/computed.js)",)
    assert agent.call("computed", city="Rome") == "Rome"
    (kept,) = (tmp_path / "kept").iterdir()
    kept.write_text(kept.read_text().replace("a b!", "kept"))
    agent.gets()
    assert agent.tool("computed").description == "kept"
    agent.write("tools/words.js", "exports.tail = '?!';")
    agent.gets()
    assert agent.tool("computed").description == "a b?!"


@pytest.mark.parametrize("engine", ["node", "quickjs"])
def test_files_that_are_no_tools_are_refused(tmp_path: Path, engine: str) -> None:
    if engine == "node" and shutil.which("node") is None:
        pytest.skip("needs node")
    agent = AgentFolder(tmp_path, engine)
    for source, fault in (
        ("const a = 1;\nmodule.exports = { name: ;", "files are CommonJS: module.exports"),
        ("module.exports = { name: 'x' };", "it exports no function execute"),
        ("module.exports = { execute() {}, parameters: 5 };", "the parameters in tools/a.js are no mapping"),
    ):
        agent.entries.clear()
        agent.add("tools/a.js", source)
        assert fault in wrong(lambda: agent.found)


def test_loading_a_file_runs_in_the_sandbox_and_its_failure_is_one_line(agent: AgentFolder, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    agent.add(
        "tools/spies.js",
        f"require('fs').writeFileSync({json.dumps(str(mark))}, '');\nmodule.exports = make({{}});",
    )
    said = wrong(lambda: agent.found)
    assert "the tool 'spies': tools/spies.js cannot be loaded: " in said
    assert "\n  → correct it" in said
    assert not mark.exists()


def test_without_an_engine_javascript_is_refused_with_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = AgentFolder(tmp_path, "quickjs")
    agent.add("tools/x.js", EMPTY)
    monkeypatch.setattr(calling, "find_spec", lambda _: None)
    assert "JavaScript tools need Node.js" in wrong(lambda: agent.found)
    assert "lmagent-local[js]" in wrong(lambda: agent.found)
