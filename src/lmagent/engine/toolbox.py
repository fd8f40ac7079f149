"""Toolbox: from a call as the model wrote it to a tool and its decoded arguments.

The block of tools that a session advertises is fixed; a tool that arrives later, or is rarely used, is `deferred`:
it stands in the catalogue (a message at the tail) and is called through `use_tool`, whose schema never changes.
Names and argument names of other agents are accepted at dispatch and advertised nowhere.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Struct

from lmagent.core.errors import ToolError
from lmagent.core.messages import ToolCall
from lmagent.core.model import ToolSpec
from lmagent.core.tool import Tool, argument_names

USE_TOOL = ToolSpec(
    "use_tool",
    "Call a tool of the catalogue (listed in the conversation) by its name.",
    {
        "type": "object",
        "properties": {"name": {"type": "string"}, "arguments": {"type": "object"}},
        "required": ["name", "arguments"],
    },
)


class Invocation(Struct, frozen=True):
    """A call that can be carried out: the tool and its decoded arguments."""

    call: ToolCall
    tool: Tool
    arguments: Any

    @property
    def summary(self) -> str:
        """The call in one line, for a person."""
        if self.tool.summary is not None:
            return self.tool.summary(self.arguments)
        fields: dict[str, object] = msgspec.to_builtins(self.arguments)
        first = next((str(value) for value in fields.values() if value not in (None, "")), "")
        return f"{self.tool.name} {first}".strip().replace("\n", " ")[:120]

    @property
    def targets(self) -> tuple[str, ...]:
        """Workspace paths that it touches."""
        return self.tool.targets(self.arguments) if self.tool.targets is not None else ()

    @property
    def command(self) -> str | None:
        """Shell line that it runs."""
        return self.tool.command(self.arguments) if self.tool.command is not None else None


class Toolbox:
    """The tools of a program. Registering the same name twice is an error: nothing shadows a built-in."""

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        self._aliases: dict[str, str] = {}
        for tool in tools:
            self.add(tool)

    def add(self, tool: Tool) -> None:
        """Register a tool.

        Raises:
            ValueError: the name is taken.
        """
        if tool.name in self._tools or tool.name == USE_TOOL.name:
            raise ValueError(f"a tool named {tool.name!r} is registered already")
        self._tools[tool.name] = tool
        for alias in tool.aliases:
            self._aliases.setdefault(alias, tool.name)

    def __iter__(self) -> Iterator[Tool]:
        """All tools, in the order of registration."""
        return iter(self._tools.values())

    def get(self, name: str) -> Tool | None:
        """The tool of this name or alias."""
        return self._tools.get(name) or self._tools.get(self._aliases.get(name, ""))

    def specs(self, block: Collection[str] | None = None) -> tuple[ToolSpec, ...]:
        """The fixed tool block: what is not deferred, and in `block` where one is given, then `use_tool`."""
        advertised = (tool for tool in self._tools.values() if not tool.deferred)
        return (*(tool.spec for tool in advertised if block is None or tool.name in block), USE_TOOL)

    def catalogue(self, advertised: Collection[str], *, terse: bool = False) -> str:
        """The tools that are not in a session's block, one a line; empty when there are none.

        Args:
            advertised: names in the block.
            terse: names of the arguments only, not their schemas.
        """
        lines = [_line(tool, terse=terse) for tool in self._tools.values() if tool.name not in advertised]
        return "Tools to call through use_tool:\n" + "\n".join(lines) if lines else ""

    def resolve(self, call: ToolCall) -> Invocation:
        """The tool and the decoded arguments of a call.

        Raises:
            ToolError: no such tool, damaged JSON or arguments that do not fit; the text tells the model what to do.
        """
        name, arguments = call.name, parse_arguments(call)
        if name == USE_TOOL.name:
            name, arguments = _unwrap(arguments)
        tool = self.get(name)
        if tool is None:
            raise ToolError(self._unknown(name), data={"code": "unknown_tool"})
        return Invocation(call, tool, _decode(tool, arguments))

    def _unknown(self, name: str) -> str:
        import difflib  # only a wrong name pays for it

        near = difflib.get_close_matches(name, [*self._tools, *self._aliases], n=1)
        hint = f" Did you mean {self._aliases.get(near[0], near[0])}?" if near else ""
        return f"There is no tool named {name!r}.{hint} Available: {', '.join(self._tools)}."


def _line(tool: Tool, *, terse: bool) -> str:
    if not terse and not tool.brief:
        return f"- {tool.name}: {tool.description} Arguments: {msgspec.json.encode(tool.spec.parameters).decode()}"
    names = (name if needed else f"{name}?" for name, needed in argument_names(tool.arguments))
    return f"- {tool.name}({', '.join(names)}): {tool.description}"


def parse_arguments(call: ToolCall) -> dict[str, Any]:
    """The arguments of a call as an object.

    Raises:
        ToolError: they are not a JSON object; the text carries them as they came and names the place of the fault.
    """
    raw = call.arguments
    if not raw.strip():
        return {}
    try:
        value = msgspec.json.decode(raw.encode("utf-8", "surrogatepass"), type=object)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as fault:
        raise ToolError(
            f"The arguments of {call.name} are not valid JSON: {_place(raw, fault)}. Nothing was run. "
            f"They came as:\n{raw}\nSend the call again with valid JSON.",
            data={"code": "malformed_arguments"},
        ) from None
    if not isinstance(value, dict):
        raise ToolError(
            f"The arguments of {call.name} must be a JSON object, not {type(value).__name__}. Nothing was run. "
            f"They came as:\n{raw}",
            data={"code": "malformed_arguments"},
        )
    return value  # type: ignore[reportUnknownVariableType]


def _place(raw: str, fault: Exception) -> str:
    import json  # the slow parser knows line and column; it runs only on damaged text

    try:
        json.loads(raw)
    except json.JSONDecodeError as error:
        return f"{error.msg} at line {error.lineno} column {error.colno} (character {error.pos} of {len(raw)})"
    except (RecursionError, ValueError):
        pass
    return str(fault)


def _unwrap(arguments: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    name, inner = arguments.get("name"), arguments.get("arguments")
    if inner is None:  # many models write them beside the name
        inner = {key: value for key, value in arguments.items() if key not in ("name", "arguments")}
    elif isinstance(inner, str):  # or as a text that holds them
        with suppress(msgspec.DecodeError, UnicodeError, RecursionError):
            inner = msgspec.json.decode(inner.encode() or b"{}", type=object)
    if not isinstance(name, str) or not isinstance(inner, dict):
        raise ToolError('use_tool needs {"name": "<tool>", "arguments": {…}}.', data={"code": "invalid_arguments"})
    return name, inner  # type: ignore[reportUnknownVariableType]


def _decode(tool: Tool, arguments: dict[str, Any]) -> Any:
    renamed = {
        tool.renames.get(key, key) if tool.renames.get(key, key) not in arguments else key: value
        for key, value in arguments.items()
    }
    if isinstance(tool.arguments, dict):
        missing = [key for key in tool.arguments.get("required", ()) if key not in renamed]
        if missing:
            raise _misfit(tool, f"missing {', '.join(missing)}")
        return renamed
    try:
        return msgspec.convert(renamed, tool.arguments)
    except msgspec.ValidationError as strict:
        try:  # kept only because it then validates
            return msgspec.convert(_loosened(renamed, tool.spec.parameters), tool.arguments, strict=False)
        except msgspec.ValidationError:
            raise _misfit(tool, str(strict)) from None


def _loosened(arguments: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """What models often send for an optional argument (null) and for a list of one (the one)."""
    required, properties = schema.get("required", ()), schema["properties"]
    kept = {name: value for name, value in arguments.items() if value is not None or name in required}
    return {
        name: [value] if isinstance(value, str) and properties.get(name, {}).get("type") == "array" else value
        for name, value in kept.items()
    }


def _misfit(tool: Tool, reason: str) -> ToolError:
    schema = msgspec.json.encode(tool.spec.parameters).decode()
    return ToolError(
        f"The arguments do not fit {tool.name}: {reason}. Nothing was run. Its schema: {schema}",
        data={"code": "invalid_arguments"},
    )
