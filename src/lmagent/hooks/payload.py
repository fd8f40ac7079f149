"""Payload: calls under Claude Code's names, which existing hooks know.

The tools and arguments are those of https://code.claude.com/docs/en/hooks (November 2025). Tools that have no
counterpart there, and further arguments, keep our names.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from lmagent.core.errors import ToolError
from lmagent.core.tool import Tool, ToolOutput
from lmagent.engine.toolbox import Invocation
from lmagent.policy.paths import located

LONGEST = 100_000
"""Characters of a result that a hook sees."""

MILLISECONDS = 1000


class ClaudeTool(Struct, frozen=True):
    """A tool's name there, and its arguments there by ours."""

    name: str
    arguments: Mapping[str, str]


TOOLS = {
    "shell": ClaudeTool("Bash", {"command": "command", "timeout": "timeout", "background": "run_in_background"}),
    "read": ClaudeTool("Read", {"path": "file_path"}),
    "write": ClaudeTool("Write", {"path": "file_path"}),
    "edit": ClaudeTool("Edit", {"path": "file_path", "search": "old_string", "replace": "new_string"}),
    "glob": ClaudeTool("Glob", {}),
    "grep": ClaudeTool("Grep", {}),
    "ls": ClaudeTool("LS", {}),
    "web_fetch": ClaudeTool("WebFetch", {}),
    "web_search": ClaudeTool("WebSearch", {}),
    "delegate": ClaudeTool("Task", {"objective": "prompt"}),
}

_UNKNOWN = ClaudeTool("", {})


def names_of(tool: Tool) -> tuple[str, str]:
    """Return a tool's name in Claude Code, and ours; a tool of an MCP server has the former as an alias."""
    foreign = next((alias for alias in tool.aliases if alias.startswith("mcp__")), tool.name)
    return TOOLS.get(tool.name, _UNKNOWN).name or foreign, tool.name


def shown_call(invocation: Invocation, workspace: str, root: str) -> dict[str, Any]:
    """Return the facts about a call; `root` is the workspace's path for the hook."""
    theirs = TOOLS.get(invocation.tool.name, _UNKNOWN).arguments
    shown: dict[str, Any] = {}
    for name, value in given(invocation).items():
        if theirs.get(name) == "file_path" and isinstance(value, str):
            value = _absolute(value, workspace, root)
        elif theirs.get(name) == "timeout":
            value *= MILLISECONDS
        shown[theirs.get(name, name)] = value
    name, ours = names_of(invocation.tool)
    return {"tool_name": name, "lmagent_tool": ours, "tool_input": shown, "tool_use_id": invocation.call.id}


def changes(invocation: Invocation, shown: Mapping[str, Any], updated: Mapping[str, Any]) -> dict[str, Any]:
    """Return, under our names, what a hook changed of the arguments that it was shown."""
    ours = {theirs: own for own, theirs in TOOLS.get(invocation.tool.name, _UNKNOWN).arguments.items()}
    changed: dict[str, Any] = {}
    for name, value in updated.items():
        if name in shown and shown[name] == value:
            continue
        if ours.get(name) == "timeout" and isinstance(value, int | float):
            value = max(1, int(value) // MILLISECONDS)
        changed[ours.get(name, name)] = value
    return changed


def shown_result(invocation: Invocation, output: ToolOutput, shown: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result of a call that has succeeded."""
    text = output.content[:LONGEST]
    if invocation.tool.name == "shell":
        code = output.data.get("exit_code", 0)
        return {"stdout": text, "stderr": "", "interrupted": False, "exit_code": code}
    if "file_path" in shown:
        return {"filePath": shown["file_path"], "success": True, "content": text}
    return {"content": text}


def given(invocation: Invocation) -> dict[str, Any]:
    """Return a call's arguments that differ from their defaults."""
    arguments: dict[str, Any] = msgspec.to_builtins(invocation.arguments)
    if not isinstance(invocation.arguments, Struct):
        return dict(arguments)
    usual = {field.encode_name: field.default for field in msgspec.structs.fields(invocation.arguments)}
    return {name: value for name, value in arguments.items() if value != usual.get(name, msgspec.NODEFAULT)}


def _absolute(path: str, workspace: str, root: str) -> str:
    try:
        first = located(workspace, (path,))[0]
    except ToolError:
        return path
    return os.path.normpath(os.path.join(root, first))
