"""Arguments: a model's arguments become those of its tool.

Names from other agents' tools become ours, and types are corrected where the schema leaves no doubt. An argument that
the tool does not have is refused by name: without it the tool would do something else than the model asked for.
"""

from __future__ import annotations

from typing import Any

import msgspec

from lmagent.core.decoding import convert
from lmagent.core.errors import ToolError
from lmagent.core.tool import Tool, argument_names, plain

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
