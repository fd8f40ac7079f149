from __future__ import annotations

import subprocess
import sys

import msgspec
import pytest

from lmagent.core.messages import ToolCall

NAMES = ["read", "write", "edit", "glob", "grep", "ls", "mkdir", "get_time"]


def test_the_tools_have_their_names_arguments_and_effects(hands) -> None:
    assert list(hands.tools) == NAMES
    arguments = {name: list(tool.spec.parameters["properties"]) for name, tool in hands.tools.items()}
    assert arguments == {
        "read": ["path", "offset", "limit"],
        "write": ["path", "content", "mode", "confirm"],
        "edit": ["path", "search", "replace", "replace_all"],
        "glob": ["pattern"],
        "grep": ["pattern", "paths", "regex", "glob", "context"],
        "ls": ["path", "depth"],
        "mkdir": ["path"],
        "get_time": [],
    }
    effects = {name: tool.effect for name, tool in hands.tools.items()}
    assert {name for name, effect in effects.items() if effect == "write"} == {"write", "edit", "mkdir"}
    assert all(effects[name] == "read" for name in ("read", "glob", "grep", "ls", "get_time"))


def test_the_schemas_stay_within_their_budget(hands) -> None:
    block = [{"type": "function", "function": msgspec.to_builtins(tool.spec)} for tool in hands.tools.values()]
    assert len(msgspec.json.encode(block)) < 4600


@pytest.mark.parametrize(
    ("alias", "arguments", "tool"),
    [
        ("read_file", '{"file_path": "a", "start_line": 3, "max_lines": 5}', "read"),
        ("write_file", '{"filename": "a", "text": "x"}', "write"),
        ("edit_file", '{"filepath": "a", "old_string": "x", "new_string": "y"}', "edit"),
        ("str_replace", '{"path": "a", "old_str": "x", "new_str": "y"}', "edit"),
        ("list_files", '{"directory": "a"}', "ls"),
        ("list_directory", '{"path": "a", "max_depth": 1}', "ls"),
        ("search_files", '{"query": "a"}', "grep"),
        ("find_files", '{"query": "a"}', "glob"),
        ("create_directory", '{"path": "a"}', "mkdir"),
        ("get_current_time", "{}", "get_time"),
    ],
)
def test_other_agents_names_are_understood(hands, alias: str, arguments: str, tool: str) -> None:
    from lmagent.engine.toolbox import Toolbox

    invocation = Toolbox(hands.tools.values()).resolve(ToolCall("1", alias, arguments))
    assert invocation.tool.name == tool
    assert invocation.summary.startswith(tool)


def test_no_alias_means_two_tools(hands) -> None:
    names = [name for tool in hands.tools.values() for name in (tool.name, *tool.aliases)]
    assert len(names) == len(set(names))


def test_importing_the_tools_loads_nothing_heavy() -> None:
    heavy = ["pathspec", "subprocess", "tempfile", "difflib", "sqlite3", "ctypes", "anyio", "shutil", "inspect"]
    code = (
        "import sys, msgspec, dataclasses; before = set(sys.modules); import lmagent.tools.registry; "
        f"print([name for name in {heavy} if name in set(sys.modules) - before])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_the_time_is_told_with_its_zone_and_weekday(hands, monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        assert hands("get_time").content == "2026-03-01T10:00:00+01:00 (Sunday, CET); UTC 2026-03-01T09:00:00Z"
    finally:
        monkeypatch.undo()
        time.tzset()
