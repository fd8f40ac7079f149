"""Toolbox: find the tool of a model's call and decode its arguments.

The block of tools that a session advertises is fixed. A tool that arrives later, or is rarely used, is `deferred`: it
is listed in the catalogue (a message at the tail) and is called through `use_tool`, whose schema never changes. Names
and argument names of other agents are accepted in calls and advertised nowhere.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any, Protocol, cast

import msgspec
from msgspec import Struct

from lmagent.core.decoding import convert, decode_json
from lmagent.core.errors import ToolError
from lmagent.core.messages import ToolCall
from lmagent.core.model import ToolSpec
from lmagent.core.tool import Tool, argument_names, plain, signature

USE_TOOL = ToolSpec(
    "use_tool",
    "Call a tool that is listed under <tools>, by its name.",
    {
        "type": "object",
        "properties": {"name": {"type": "string"}, "arguments": {"type": "object"}},
        "required": ["name", "arguments"],
    },
)


CATALOGUE_HEAD = "More tools, to call through use_tool (? may be left out, [] is a list):"


class Invocation(Struct, frozen=True):
    call: ToolCall
    tool: Tool
    arguments: Any

    @property
    def summary(self) -> str:
        """The call in one line, for the user."""
        if self.tool.summary is not None:
            return self.tool.summary(self.arguments)
        fields: dict[str, object] = msgspec.to_builtins(self.arguments)
        first = next((str(value) for value in fields.values() if value not in (None, "")), "")
        return f"{self.tool.name} {first}".strip().replace("\n", " ")[:120]

    @property
    def targets(self) -> tuple[str, ...]:
        """Workspace paths that the call touches."""
        return self.tool.targets(self.arguments) if self.tool.targets is not None else ()

    @property
    def outside(self) -> str:
        """The name that other agents' rules have for a server's tool; empty for ours."""
        return next((alias for alias in self.tool.aliases if alias.startswith("mcp__")), "")

    @property
    def command(self) -> str | None:
        return self.tool.command(self.arguments) if self.tool.command is not None else None

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts that the call connects to, each as `host:port`."""
        return self.tool.hosts(self.arguments) if self.tool.hosts is not None else ()


class Outside(Protocol):
    """Tools that come and go: those of servers. They are in no catalogue of ours, and shadow no tool of ours."""

    def get(self, name: str) -> Tool | None:
        """Return the tool of a name in any spelling."""
        ...

    def __iter__(self) -> Iterator[Any]:
        """Return the tools' names, aliases and specs, for the reader of calls in text."""
        ...


class Toolbox:
    """The tools of a program. A name can be registered only once, so no tool shadows a built-in."""

    def __init__(self, tools: Iterable[Tool] = (), outside: Outside | None = None) -> None:
        self.outside = outside
        self._tools: dict[str, Tool] = {}
        self._aliases: dict[str, str] = {}
        for tool in tools:
            self.add(tool)

    def add(self, tool: Tool) -> None:
        """Register a tool.

        Raises ValueError: the name is taken.
        """
        if tool.name in self._tools or tool.name == USE_TOOL.name:
            raise ValueError(f"a tool named {tool.name!r} is registered already")
        self._tools[tool.name] = tool
        for alias in tool.aliases:
            self._aliases.setdefault(alias, tool.name)

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def get(self, name: str) -> Tool | None:
        """Return the tool of a name or alias in any spelling: `read_file`, `ReadFile`, `functions.read`."""
        own = self._exactly(name) or self._exactly(plain(name))
        return own if own is not None or self.outside is None else self.outside.get(name)

    def _exactly(self, name: str) -> Tool | None:
        return self._tools.get(name) or self._tools.get(self._aliases.get(name, ""))

    def callable(self) -> tuple[Any, ...]:
        """Return all tools that a call in text may name, with their aliases and specs."""
        return (*self._tools.values(), *(self.outside or ()))

    def specs(self, block: Collection[str] | None = None) -> tuple[ToolSpec, ...]:
        """Return the fixed tool block: tools that are not deferred, filtered by `block`, then `use_tool`."""
        advertised = (tool for tool in self._tools.values() if not tool.deferred)
        return (*(tool.spec for tool in advertised if block is None or tool.name in block), USE_TOOL)

    def catalogue(self, advertised: Collection[str]) -> str:
        """Return a line for each tool outside the `advertised` block; empty if all tools are in it."""
        lines = [catalogue_line(tool) for tool in self._tools.values() if tool.name not in advertised]
        return "\n".join((CATALOGUE_HEAD, *lines)) if lines else ""

    def resolve(self, call: ToolCall) -> Invocation:
        name, arguments = call.name, parse_arguments(call)
        if name == USE_TOOL.name:
            name, arguments = _unwrap(arguments)
        tool = self.get(name)
        if tool is None:
            raise ToolError(self._unknown(name), data={"code": "unknown_tool"})
        return Invocation(call, tool, decode(tool, arguments))

    def _unknown(self, name: str) -> str:
        import difflib  # only a wrong name needs it

        others = [tool.name for tool in self.outside or ()]
        near = difflib.get_close_matches(name, [*self._tools, *self._aliases, *others], n=1)
        hint = f" Did you mean {self._aliases.get(near[0], near[0])}?" if near else ""
        block = (tool.name for tool in self._tools.values() if not tool.deferred)
        catalogue = f"{USE_TOOL.name} (for those listed under <tools>)"
        return f"There is no tool named {name!r}.{hint} Available: {', '.join((*block, catalogue))}."


def catalogue_line(tool: Tool) -> str:
    """Return a tool's signature and description. A call that does not fit gets the schema."""
    return f"- {tool.name}({signature(tool.arguments, tool.unlisted)}): {tool.description}"


def parse_arguments(call: ToolCall) -> dict[str, Any]:
    """Return the arguments of a call as an object.

    A ToolError quotes damaged arguments to the model, with the position of the fault.
    """
    raw = call.arguments
    if not raw.strip():
        return {}
    try:
        value = decode_json(raw.encode("utf-8", "surrogatepass"), object)
        why = f"must be a JSON object, not {type(value).__name__}"
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        from lmagent.core.loosejson import fault_in  # few models need it

        value, why = None, f"are not valid JSON: {fault_in(raw)}"
    if isinstance(value, dict):
        return cast("dict[str, Any]", value)
    raise ToolError(
        f"The arguments of {call.name} {why}. Nothing was run. They came as:\n{raw}\n"
        "Send the call again with valid JSON.",
        data={"code": "malformed_arguments"},
    )


def _unwrap(arguments: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the tool and the arguments in a call of use_tool; many models write them next to the name, or as text."""
    flat = dict(arguments)
    name = next((flat.pop(key) for key in ("name", "tool_name", "tool") if isinstance(flat.get(key), str)), None)
    inner = next((flat.pop(key) for key in ("arguments", "args", "parameters") if key in flat), None)
    if isinstance(inner, str):
        from lmagent.core.repair import read_arguments  # few models need it

        inner = read_arguments(inner) if inner.strip() else {}
    elif inner is None:
        inner = {}
    given = cast("dict[str, Any]", inner) if isinstance(inner, dict) else None
    if name is None or given is None or any(given.get(key, value) != value for key, value in flat.items()):
        raise ToolError('use_tool needs {"name": "<tool>", "arguments": {…}}.', data={"code": "invalid_arguments"})
    return name, {**flat, **given}


_NOTHING: tuple[Any, ...] = (None, "", [], {})
"""Values by which an argument asks for nothing."""


def decode(tool: Tool, arguments: dict[str, Any]) -> Any:
    """Return the arguments as the tool's type.

    Raises ToolError: they do not fit, or some are unknown; the text tells the model what to do.
    """
    named = _named(tool, arguments)
    if isinstance(tool.arguments, dict):
        from lmagent.core.repair import fit  # compiles its patterns: only for calls of outside tools

        missing = [key for key in tool.arguments.get("required", ()) if key not in named]
        if missing:
            raise _misfit(tool, f"missing {', '.join(missing)}")
        return fit(named, tool.arguments)
    try:
        return convert(named, tool.arguments)
    except msgspec.ValidationError as strict:
        from lmagent.core.repair import fit  # few calls need it

        schema = tool.spec.parameters
        required = schema.get("required", ())
        given = {name: value for name, value in named.items() if value is not None or name in required}
        try:  # used only because it then validates
            return convert(fit(given, schema), tool.arguments, strict=False)
        except msgspec.ValidationError:
            raise _misfit(tool, str(strict)) from None


def _named(tool: Tool, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments under the tool's names for them; unknown ones raise ToolError."""
    own = {name for name, _ in argument_names(tool.arguments)}
    named: dict[str, Any] = {}
    for key in sorted(arguments, key=lambda key: key not in own):  # the tool's own names first
        name, value = _own_name(tool, key, own), arguments[key]
        if name and named.get(name) is None:
            named[name] = value
        elif name and value != named[name] and value not in _NOTHING:
            raise _refused(tool, [key], f" It means {name}, which has another value.")
    unknown = [name for name in named if name not in own]
    if unknown and tool.adapt is not None:
        named = tool.adapt(named)
    if isinstance(tool.arguments, dict) and tool.arguments.get("additionalProperties") is not False:
        return named  # an outside tool itself refuses unknown arguments
    left = [name for name, value in named.items() if name not in own and not _says_nothing(tool, name, value)]
    if left:
        raise _refused(tool, left)
    return {name: value for name, value in named.items() if name in own}


def _own_name(tool: Tool, key: str, own: set[str]) -> str:
    """Return the tool's name for an argument; empty for an argument that only explains the call."""
    for spelled in (key, plain(key)):
        if spelled in own:
            return spelled
        if spelled in tool.renames:
            return tool.renames[spelled]
    return key if isinstance(tool.arguments, dict) else plain(key)


def _says_nothing(tool: Tool, name: str, value: Any) -> bool:
    """Return whether an unknown argument asks only for the tool's usual behaviour."""
    said = value.lower() if isinstance(value, str) else value
    does = tool.implied.get(name, ())
    return value in _NOTHING or any(said == each and isinstance(said, bool) == isinstance(each, bool) for each in does)


def _refused(tool: Tool, names: list[str], why: str = "") -> ToolError:
    takes = ", ".join(name if needed else f"{name}?" for name, needed in argument_names(tool.arguments)) or "none"
    named = " and ".join(repr(name) for name in names)
    return ToolError(
        f"{tool.name} has no argument {named}.{why} Nothing was run. It takes: {takes}.",
        data={"code": "invalid_arguments"},
    )


def _misfit(tool: Tool, reason: str) -> ToolError:
    schema = msgspec.json.encode(tool.spec.parameters).decode()
    return ToolError(
        f"The arguments do not fit {tool.name}: {reason}. Nothing was run. Its schema: {schema}",
        data={"code": "invalid_arguments"},
    )
