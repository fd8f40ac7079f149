"""Enforce: `tool_choice` "required", a named tool and allowed tools, by a schema that the engine cannot leave.

The engine lets "required" talk without end before it calls, and takes a named choice for "auto". So the request asks
for one JSON object (a list of them, if several calls are allowed), and `calls_in` gives it back as calls:

    {"name": "read", "arguments": {"path": "a.py"}}

The tools stay in the request, so that the template renders them and the prompt is the same as with "auto".
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from msgspec import Struct

from lmagent.core.ids import new_id
from lmagent.core.messages import ToolCall
from lmagent.modelserver.errors import BadRequest
from lmagent.providers import jsontext

MOST_CALLS = 8  # calls in one reply where several are allowed; without a limit a weak model would not stop
_DECODER = json.JSONDecoder()
_REFERENCE = b'"$ref":"#'  # the beginning of a reference, as `jsontext` writes it
_NO_ARGUMENTS: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}


class RequiredCalls(Struct, frozen=True):
    names: tuple[str, ...]  # of the tools, one of which has to be called
    many: bool = False  # several calls may come


def choice_of(body: Mapping[str, Any]) -> RequiredCalls | None:
    """Return the calls that a chat request insists on; None if the model may choose."""
    choice = body.get("tool_choice")
    tools = cast("list[dict[str, Any]]", body.get("tools") or [])
    names = tuple(dict.fromkeys(str(tool["function"]["name"]) for tool in tools))
    if choice in (None, "auto", "none"):
        return None
    many = body.get("parallel_tool_calls") is True
    if choice == "required":
        wanted = names
    elif isinstance(choice, dict):
        chosen = cast("dict[str, Any]", choice)
        wanted, forced = _wanted(chosen)
        if not forced:
            return None
        many = many and chosen.get("type") != "function"
    else:
        raise _wrong(f'{choice!r}; it can be "auto", "none", "required" or an object that names tools')
    if not wanted:
        raise _wrong("an order to call a tool, and there are no tools to call")
    if missing := [name for name in wanted if name not in names]:
        raise _wrong(f"a choice of {missing[0]!r}, which is not among the tools: {', '.join(names) or 'none'}")
    return RequiredCalls(wanted, many)


def _wanted(choice: dict[str, Any]) -> tuple[tuple[str, ...], bool]:
    """Return the tools that a choice names, and whether one of them has to be called."""
    match choice:
        case {"type": "function", "function": {"name": str(name)}} | {"type": "function", "name": str(name)}:
            return (name,), True
        case {"type": "allowed_tools", "allowed_tools": {"tools": [*tools], **rest}}:
            return tuple(name for tool in tools for name in _wanted(tool)[0]), rest.get("mode") == "required"
        case {"type": "allowed_tools", "tools": [*tools], **rest}:
            return tuple(name for tool in tools for name in _wanted(tool)[0]), rest.get("mode") == "required"
        case _:
            raise _wrong('no choice; it has to be {"type": "function", "function": {"name": …}} or allowed tools')


def allowed_only(body: dict[str, Any]) -> dict[str, Any]:
    """Translate "allowed tools" into a shorter list of tools, which the engine knows."""
    choice = body.get("tool_choice")
    if not isinstance(choice, dict) or cast("dict[str, Any]", choice).get("type") != "allowed_tools":
        return body
    names = _wanted(cast("dict[str, Any]", choice))[0]
    kept = [tool for tool in body.get("tools") or () if tool["function"]["name"] in names]
    return {**body, "tools": kept, "tool_choice": "auto"}


def enforced(body: Mapping[str, Any], choice: RequiredCalls) -> dict[str, Any]:
    """Return the request that the engine gets."""
    chosen: dict[str, dict[str, Any]] = {}
    for tool in cast("list[dict[str, Any]]", body["tools"]):
        function = cast("dict[str, Any]", tool["function"])
        if function["name"] in choice.names:
            chosen.setdefault(function["name"], function)
    schema = calls_schema(list(chosen.values()), many=choice.many)
    left_out = ("tool_choice", "response_format", "parallel_tool_calls", "grammar", "json_schema")
    kept = {name: value for name, value in body.items() if name not in left_out}
    form = {"type": "json_schema", "json_schema": {"name": "call", "strict": True, "schema": schema}}
    return {**kept, "tool_choice": "none", "response_format": form}


def calls_schema(functions: Sequence[Mapping[str, Any]], *, many: bool = False) -> dict[str, Any]:
    """Return the schema of a call of one of the functions, or of a list of calls."""
    shared: dict[str, Any] = {}
    calls: list[dict[str, Any]] = []
    for number, function in enumerate(functions):
        parameters = cast("dict[str, Any]", function.get("parameters") or _NO_ARGUMENTS)
        if not parameters.get("properties") and "$ref" not in parameters and "anyOf" not in parameters:
            parameters = parameters if parameters.get("additionalProperties") else {**parameters, **_NO_ARGUMENTS}
        arguments = closed(parameters, strict=function.get("strict") is True)
        if _REFERENCE in (text := jsontext.dumps(arguments)):
            # References begin at the root, which is ours: the schema moves, whole, to a place of its own there.
            place = f"#/$defs/tool{number}"
            shared[f"tool{number}"] = jsontext.loads(text.replace(_REFERENCE, f'"$ref":"{place}'.encode()))
            arguments = {"$ref": place}
        properties = {"name": {"const": function["name"]}, "arguments": arguments}
        required = ["name", "arguments"]
        calls.append({"type": "object", "properties": properties, "required": required, "additionalProperties": False})
    one = calls[0] if len(calls) == 1 else {"anyOf": calls}
    schema = {"type": "array", "items": one, "minItems": 1, "maxItems": MOST_CALLS} if many else one
    return {**schema, "$defs": shared} if shared else schema


def closed(schema: Any, *, strict: bool = False) -> Any:
    """Forbid unknown fields in objects, unless the schema allows them; strict objects need all fields."""
    if isinstance(schema, list):
        return [closed(item, strict=strict) for item in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    fields = dict(cast("dict[str, Any]", schema))
    for name in ("properties", "$defs", "definitions"):
        if isinstance(inner := fields.get(name), dict):
            fields[name] = {key: closed(part, strict=strict) for key, part in cast("dict[str, Any]", inner).items()}
    for name in ("items", "prefixItems", "anyOf", "oneOf"):
        if name in fields:
            fields[name] = closed(fields[name], strict=strict)
    if fields.get("properties") and "allOf" not in fields:
        if strict:
            fields |= {"additionalProperties": False, "required": list(fields["properties"])}
        else:
            fields.setdefault("additionalProperties", False)
    return fields


def _wrong(what: str) -> BadRequest:
    return BadRequest(f"'tool_choice' is {what}", param="tool_choice", code="invalid_tool_choice")


def calls_in(text: str) -> list[ToolCall]:
    """Return the whole calls in a reply whose form was enforced."""
    calls: list[ToolCall] = []
    rest = text
    while rest := rest.lstrip(" \t\r\n[,"):
        try:
            value, end = _DECODER.raw_decode(rest)
            calls.append(ToolCall(f"call_{new_id()}", value["name"], jsontext.dumps(value["arguments"]).decode()))
        except (ValueError, TypeError, KeyError, RecursionError):  # its end was cut off, or it is no call
            break
        rest = rest[end:]
    return calls
