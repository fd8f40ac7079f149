"""Tool: a thing the model can ask for, and its contract with the engine.

arguments  a msgspec Struct (the engine decodes, validates and words the errors), or a JSON schema for tools from
outside effect     what it can do to the world; the gate decides by it, and reads of one reply run in parallel
run        gets decoded arguments and a context; returns a ToolOutput or raises ToolError; anything else that it
           raises is a bug, is caught at the tool boundary and reported to the model as such
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct, field

from lmagent.core.model import ToolSpec

AskHost = Callable[[str, int], Awaitable[bool]]
"""Asks whether a command of the call may reach a host and port."""


async def refuse_host(_host: str, _port: int) -> bool:
    """Nobody is there to ask."""
    return False


Effect = Literal["read", "write", "exec", "net"]


class FileMark(Struct, frozen=True):
    """What the session knows of a file: its content's SHA-256 when the model last read or wrote it."""

    sha256: str
    changed: bool


def _nothing(_path: str) -> bool:
    return False


class ToolContext(Struct, frozen=True):
    """What a running call may know and do. A tool that needs more closes over it when it is registered.

    Attributes:
        session: the session's id.
        call: the call's id.
        workspace: absolute path of the workspace.
        seen: files the model has read or written in this session, by path relative to the workspace ("/" separated).
        emit: shows a piece of output to whoever watches.
        hidden: whether permission rules keep a path (relative to the workspace) from this call. A tool that goes
            further than the paths which its `targets` name asks for each, leaves out those, and says how many.
        ask_host: asks whether a command may reach a host that the configuration does not list.
    """

    session: str
    call: str
    workspace: Path
    seen: Mapping[str, FileMark]
    emit: Callable[[str], None]
    hidden: Callable[[str], bool] = field(default=_nothing)
    ask_host: AskHost = refuse_host


class ToolOutput(Struct, frozen=True):
    """What a call returns.

    Attributes:
        content: what the model is told. The engine caps it once (2,000 tokens) and keeps the whole as an artifact.
        data: facts for surfaces and the ledger. Known keys: `path` and `sha256` (a file read or written; `changed`
            true for a write), `diff` (unified diff), `lines`, `truncated`.
        full: the whole output, where `content` is already a page or an excerpt of it.
        file: a file of ours that holds the whole output, where that is too long for memory; the engine takes it over.
    """

    content: str
    data: dict[str, Any] = field(default_factory=dict[str, Any])
    full: str | None = None
    file: Path | None = None


Run = Callable[[Any, ToolContext], Awaitable[ToolOutput]]


class Tool(Struct, frozen=True):
    """One tool.

    Attributes:
        name: as advertised.
        description: for the model; every byte is paid for in every prompt.
        arguments: a Struct type, or a JSON schema (of type object) for tools from outside.
        effect: read, write, exec or net.
        run: see the module.
        replay_safe: running it twice does no harm, so a crash may simply repeat it. Reads are, always.
        deferred: not in the tool block; listed in the catalogue and called through `use_tool`.
        brief: the catalogue only names its arguments; a call that does not fit is told the schema.
        aliases: other names accepted at dispatch and never advertised.
        renames: argument names of the aliases' owners, to ours (`file_path` → `path`).
        summary: the call in one line for a person; the default is `name(first argument)`.
        preview: what would change (a diff), for the approval; may touch the disk, must not change it.
        targets: workspace paths that the call touches, for permission rules, as the model named them.
        command: the shell line that the call runs, for permission rules.
    """

    name: str
    description: str
    arguments: type[msgspec.Struct] | dict[str, Any]
    effect: Effect
    run: Run
    replay_safe: bool = False
    deferred: bool = False
    brief: bool = False
    aliases: tuple[str, ...] = ()
    renames: Mapping[str, str] = field(default_factory=dict[str, str])
    summary: Callable[[Any], str] | None = None
    preview: Callable[[Any, ToolContext], str] | None = None
    targets: Callable[[Any], tuple[str, ...]] | None = None
    command: Callable[[Any], str] | None = None

    @property
    def spec(self) -> ToolSpec:
        """The tool as the model is told about it."""
        return ToolSpec(self.name, self.description, argument_schema(self.arguments))


def argument_schema(arguments: type[msgspec.Struct] | dict[str, Any]) -> dict[str, Any]:
    """The JSON schema of a tool's arguments, flat and short: no titles, no references, no defaults."""
    return arguments if isinstance(arguments, dict) else _struct_schema(arguments)


def argument_names(arguments: type[msgspec.Struct] | dict[str, Any]) -> list[tuple[str, bool]]:
    """The names of a tool's arguments, and whether each is required. A Struct's cost no schema: that is 0.2 ms."""
    if isinstance(arguments, dict):
        return [(name, name in arguments.get("required", ())) for name in arguments.get("properties", {})]
    names, defaults = arguments.__struct_encode_fields__, arguments.__struct_defaults__
    needed = [True] * (len(names) - len(defaults)) + [default is msgspec.NODEFAULT for default in defaults]
    return list(zip(names, needed, strict=True))


@lru_cache(maxsize=256)  # the catalogue is put together anew before every step, to see whether it has changed
def _struct_schema(arguments: type[msgspec.Struct]) -> dict[str, Any]:
    (schema,), components = msgspec.json.schema_components([arguments], ref_template="{name}")
    resolved: Any = _inline(schema, components)
    resolved.setdefault("properties", {})
    resolved.pop("description", None)  # the Struct's docstring is for us; the tool has a description of its own
    return resolved


def _inline(node: Any, components: Mapping[str, Any]) -> Any:
    if isinstance(node, list):
        return [_inline(item, components) for item in node]  # type: ignore[reportUnknownVariableType]
    if not isinstance(node, dict):
        return node
    known: dict[str, Any] = node  # type: ignore[reportUnknownVariableType]
    if "$ref" in known:
        return _inline(components[known["$ref"]], components)
    return {
        key: {name: _inline(sub, components) for name, sub in value.items()}
        if key == "properties"
        else _inline(value, components)
        for key, value in known.items()
        if key not in ("title", "default")
    }
