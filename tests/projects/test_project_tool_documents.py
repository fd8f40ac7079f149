"""The examples and the table of docs/agent-tools.md, as they are printed."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from tools_kit import AgentFolder

from lmagent.projects.spec import ToolEntry
from lmagent.projects.tools.javascript import Facts, read_javascript
from lmagent.projects.tools.own import DESCRIBED
from lmagent.projects.tools.schema import PARAMETERS, declared_schema, signature

PAGE = (Path(__file__).parents[2] / "docs" / "agent-tools.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def block(beginning: str) -> str:
    """Return the block that has a text in its first two lines."""
    return next(code for _, code in BLOCKS if beginning in "".join(code.splitlines(keepends=True)[:3]))


def test_the_examples_work_as_printed(tmp_path: Path) -> None:
    agent = AgentFolder(tmp_path)
    for name, mark in (("weather.js", "//"), ("trip.py", "#"), ("upper.sh", "#")):
        agent.write(f"tools/{name}", block(f"{mark} tools/{name}"), executable=name.endswith(".sh"))
    agent.write("tools/upper.json", block('"Write a text in capitals"'))
    agent.entries = [ToolEntry(**row) for row in yaml.safe_load(block("tools:"))["tools"] if "path" in row]
    assert [tool.name for tool in agent.found.tools] == ["weather", "trip", "upper"]
    assert agent.found.facts[0] in PAGE
    said = '{"city":"Rome","forecast":["20 C","20 C"]}\n[printed]\nasking for Rome'
    assert agent.call("weather", city="Rome", days=2) == said
    assert agent.call("trip", stops=[{"city": "Rome", "nights": 2}]) == '{"nights": 2, "by": "train"}'
    assert agent.call("upper", text="hoo") == '{"TEXT": "HOO"}'


def test_short_forms_mean_what_the_page_says() -> None:
    schema = declared_schema(yaml.safe_load(block("parameters:"))["parameters"], "the parameters")
    assert signature("t", schema) == 't(city, days?=3, tags?, unit?="C")'


@pytest.mark.parametrize(("code", "tool"), re.findall(r"^\| `(.+?)` \| `(t\(.*\))` \|$", PAGE, re.MULTILINE))
def test_the_table_of_inferred_parameters_is_true(code: str, tool: str) -> None:
    found = read_javascript(Facts("t", "", code), f"module.exports = {{ execute: {code} }};", "a.js")
    assert signature("t", found.schema) == tool


def test_the_limits_are_those_of_the_page() -> None:
    assert f"{DESCRIBED:,} characters" in PAGE
    assert f"{PARAMETERS} parameters" in PAGE
    assert ToolEntry("t").timeout == 60
    assert json.loads(block('"Write a text in capitals"'))["command"] == ["./tools/upper.sh"]
