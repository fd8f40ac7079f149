"""Offer: the tools that clients get. Those that work on a conversation stay with our own agent."""

from __future__ import annotations

from collections.abc import Collection

from msgspec import Struct

from lmagent.core.errors import ConfigError
from lmagent.core.tool import Tool
from lmagent.engine.toolbox import Toolbox

FILES = ("read", "write", "edit", "glob", "grep", "ls", "mkdir")
COMMANDS = ("shell", "jobs", "python", "git_status", "git_diff", "git_add", "git_commit", "git_branch")
OFFERED = (*FILES, *COMMANDS, "read_artifact")
"""Names of our tools that need no conversation. A plugin's tool, or another MCP server's, is not passed on."""

DELEGATE = "delegate"

ALL = (*OFFERED, DELEGATE)


class Hints(Struct, frozen=True):
    """What a tool may do, for the client."""

    read_only: bool
    destructive: bool
    open_world: bool


def offered(toolbox: Toolbox, names: Collection[str]) -> tuple[Tool, ...]:
    """Return the tools with these names, or all if none are given; those that the settings switch off are left out."""
    wanted = [name for name in OFFERED if not names or name in names]
    found = [toolbox.get(name) for name in wanted]
    return tuple(tool for tool, name in zip(found, wanted, strict=True) if tool is not None and tool.name == name)


def chosen(text: str) -> tuple[str, ...]:
    """Return the names in a list such as `read,grep`. Raise ConfigError for an unknown name, or if it has none."""
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if unknown := [name for name in names if name not in ALL]:
        raise ConfigError(f"no tool named {unknown[0][:80]!r} is offered", fix=f"choose among {', '.join(ALL)}")
    if not names:  # an empty variable must not offer everything
        raise ConfigError("--tools names no tool", fix=f"choose among {', '.join(ALL)}, or leave it out to offer all")
    return names


def hints(tool: Tool) -> Hints:
    """Return the hints for a tool. `jobs` counts as reading for our gate, but can end a command."""
    reads = tool.effect == "read" and tool.name != "jobs"
    return Hints(reads, not (reads or tool.name == "mkdir"), tool.effect == "net")
