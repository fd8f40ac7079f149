"""Arguments: what a model gave, as what its tool takes.

Names of other agents' tools become ours, types are put right where the schema leaves no doubt, and an argument that the
tool does not have is refused by its name: what was asked for would not be what is done.
"""

from __future__ import annotations

from typing import Any

import msgspec

from lmagent.core.decoding import convert
from lmagent.core.errors import ToolError
from lmagent.core.tool import Tool, argument_names, plain

_NOTHING: tuple[Any, ...] = (None, "", [], {})
"""Values by which an argument says nothing."""


def decode(tool: Tool, arguments: dict[str, Any]) -> Any:
    """The arguments as the tool takes them.

    Raises:
        ToolError: they do not fit, or there are some that it does not have; the text tells the model what to do.
    """
    named = _named(tool, arguments)
    if isinstance(tool.arguments, dict):
        from lmagent.core.repair import fit  # its patterns are compiled with the first call of a tool from outside

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
        try:  # kept only because it then validates
            return convert(fit(given, schema), tool.arguments, strict=False)
        except msgspec.ValidationError:
            raise _misfit(tool, str(strict)) from None


def _named(tool: Tool, arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments by the names that the tool has.

    Raises:
        ToolError: some are left that it does not have.
    """
    own = {name for name, _ in argument_names(tool.arguments)}
    named: dict[str, Any] = {}
    for key in sorted(arguments, key=lambda key: key not in own):  # the name that it has goes first
        name, value = _own_name(tool, key, own), arguments[key]
        if name and named.get(name) is None:
            named[name] = value
        elif name and value != named[name] and value not in _NOTHING:
            raise _refused(tool, [key], f" It means {name}, which has another value.")
    unknown = [name for name in named if name not in own]
    if unknown and tool.adapt is not None:
        named = tool.adapt(named)
    if isinstance(tool.arguments, dict) and tool.arguments.get("additionalProperties") is not False:
        return named  # a tool from outside says itself what it does not take
    left = [name for name, value in named.items() if name not in own and not _says_nothing(tool, name, value)]
    if left:
        raise _refused(tool, left)
    return {name: value for name, value in named.items() if name in own}


def _own_name(tool: Tool, key: str, own: set[str]) -> str:
    """The tool's name for an argument; empty for one that only says why."""
    for spelled in (key, plain(key)):
        if spelled in own:
            return spelled
        if spelled in tool.renames:
            return tool.renames[spelled]
    return key if isinstance(tool.arguments, dict) else plain(key)


def _says_nothing(tool: Tool, name: str, value: Any) -> bool:
    """Whether an argument that the tool does not have asks for nothing that it does not do."""
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
