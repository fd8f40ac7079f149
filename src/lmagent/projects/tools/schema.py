"""Schema: the declared parameters of a tool, and whether a call's arguments fit them.

A declaration is a JSON schema of type object, or a short form for each name: `limit: integer = 5 - how many`.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

from lmagent.core.errors import ConfigError, ToolError
from lmagent.core.repair import fit
from lmagent.tools.sanitize import one_line

TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "number": (int, float),
    "integer": int,
    "boolean": bool,
    "array": list,
    "object": dict,
    "null": type(None),
}

SHORT = "TYPE, TYPE? or TYPE = DEFAULT, each with ` - text` after it; TYPE is " + ", ".join([*TYPES][:6]) + " or TYPE[]"

DEPTH = 12
"""Levels of a schema."""

PARAMETERS = 64
"""Parameters of a tool."""

DESCRIBED = 300
"""Characters of a parameter's description: each is in every prompt."""

_UNCHECKED = ("title", "default", "examples", "format", "pattern", "deprecated", "$schema", "$comment")
_KNOWN = {
    *("type", "description", "properties", "required", "additionalProperties", "items", "enum", "const", "anyOf"),
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength", "minItems", "maxItems"),
    *_UNCHECKED,
}
_SENT = _KNOWN - {"title", "examples", "deprecated", "$schema", "$comment"}
"""Keys that the model sees."""

_BOUNDS: dict[str, tuple[Callable[[Any, Any], bool], str]] = {
    "minimum": (operator.ge, "at least"),
    "maximum": (operator.le, "at most"),
    "exclusiveMinimum": (operator.gt, "more than"),
    "exclusiveMaximum": (operator.lt, "less than"),
}

_SHORT = re.compile(
    r"(?P<type>[a-z]+)(?P<list>\[\])?(?P<optional>\?)?(?:\s*=\s*(?P<default>.+?))?(?:\s+-\s+(?P<text>.*))?",
    re.DOTALL,
)


def declared_schema(parameters: Any, where: str) -> dict[str, Any]:
    """Return the JSON schema of declared parameters. Raise ConfigError, which names `where` they are declared."""
    if not isinstance(parameters, Mapping):
        raise ConfigError(f"{where} are no mapping of names", fix="give a JSON schema of type object, or short forms")
    known = cast("Mapping[str, Any]", parameters)
    if known.get("type") == "object" and isinstance(known.get("properties", {}), Mapping):
        schema = _checked(known, where, 0)
        return {**schema, "properties": schema.get("properties", {})}
    properties, required = dict[str, Any](), list[str]()
    for name, value in known.items():
        properties[str(name)], needed = _parameter(value, f"{where}: {one_line(str(name), 60)}")
        required += [str(name)] * needed
    return object_schema(properties, required, where)


def object_schema(
    properties: dict[str, Any], required: list[str], where: str, *, open_ended: bool = False
) -> dict[str, Any]:
    """Return the schema of all parameters; others are refused, unless it is open-ended. Raise ConfigError."""
    if len(properties) > PARAMETERS:
        raise ConfigError(f"{where} are {len(properties)}, and {PARAMETERS} are taken", fix="group some in an object")
    made: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        made["required"] = required
    return made if open_ended else {**made, "additionalProperties": False}


def _parameter(value: Any, where: str) -> tuple[dict[str, Any], bool]:
    """Return the schema of a parameter and whether it is required, from its short form or its own schema."""
    if isinstance(value, Mapping):
        schema = _checked(cast("Mapping[str, Any]", value), where, 1)
        return schema, "default" not in schema
    found = _SHORT.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None or found["type"] not in TYPES:
        raise ConfigError(f"{where} is {_quoted(value)}, which is no type", fix=f"write {SHORT}")
    schema: dict[str, Any] = {"type": found["type"]}
    if found["list"]:
        schema = {"type": "array", "items": schema}
    if found["text"]:
        schema["description"] = one_line(found["text"].strip(), DESCRIBED)
    if found["default"] is None:
        return schema, not found["optional"]
    try:
        default = json.loads(found["default"])
    except ValueError:
        default = found["default"].strip()
    if why := misfit(default, schema, ""):
        raise ConfigError(f"{where} has a default that does not fit: {why}", fix="correct the default or the type")
    return {**schema, "default": default}, False


def _checked(node: Any, where: str, depth: int) -> dict[str, Any]:
    """Return a schema with the keys that the model sees. Raise ConfigError for one that calls cannot be judged by."""
    if not isinstance(node, Mapping) or depth > DEPTH:
        why = "is nested too deep" if isinstance(node, Mapping) else f"is {_quoted(node)}, and no schema"
        raise ConfigError(f"{where} {why}", fix="write a JSON schema, for example {type: string}")
    known = cast("Mapping[str, Any]", node)
    if unknown := [key for key in known if key not in _KNOWN]:
        fix = f"leave it out, or use {', '.join(sorted(_SENT))}"
        raise ConfigError(
            f"{where} has the key {one_line(str(unknown[0]), 40)!r}, which tools here cannot have", fix=fix
        )
    made: dict[str, Any] = {key: value for key, value in known.items() if key in _SENT}
    if (wrong := _wrong(known)) is not None:
        raise ConfigError(f"{where}: {wrong[0]} is {_quoted(known[wrong[0]])}", fix=f"write {wrong[1]}")
    if "description" in known:
        made["description"] = one_line(str(known["description"]).strip(), DESCRIBED)
    if "properties" in known:
        parts = cast("Mapping[str, Any]", known["properties"])
        object_schema(dict(parts), [], where)
        made["properties"] = {str(name): _checked(sub, f"{where}: {name}", depth + 1) for name, sub in parts.items()}
    if "items" in known:
        made["items"] = _checked(known["items"], f"{where}: items", depth + 1)
    if "anyOf" in known:
        made["anyOf"] = [_checked(sub, f"{where}: anyOf", depth + 1) for sub in known["anyOf"]]
    return made


def _wrong(known: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return a key of a schema whose value has the wrong form, and what to write."""
    kinds: Any = known.get("type", [])
    listed = cast("list[Any]", kinds) if isinstance(kinds, list) else [kinds]
    if any(not isinstance(kind, str) or kind not in TYPES for kind in listed):
        return "type", f"one of {', '.join(TYPES)}"
    for key, kind, fix in (
        ("properties", Mapping, "a mapping of names to schemas"),
        ("required", list, "a list of names"),
        ("enum", list, "a list of values"),
        ("anyOf", list, "a list of schemas"),
        ("additionalProperties", bool, "true or false"),
        *((key, (int, float), "a number") for key in sorted(_KNOWN) if key.startswith(("min", "max", "exclusive"))),
    ):
        if key in known and (not isinstance(known[key], kind) or (isinstance(known[key], bool) and kind is not bool)):
            return key, fix
    return None


def fitting(name: str, schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call, repaired where that leaves no doubt. Raise ToolError, which names the wrong one.

    A null for a parameter that may be left out is left out.
    """
    required, properties = schema.get("required", ()), cast("dict[str, Any]", schema.get("properties", {}))
    given = {
        key: value
        for key, value in arguments.items()
        if value is not None or key in required or not misfit(None, properties.get(key, {}), "")
    }
    repaired = fit(given, schema)
    if why := misfit(repaired, schema, ""):
        raise ToolError(f"The arguments do not fit {name}: {why}. Nothing was run.", data={"code": "invalid_arguments"})
    return repaired


def misfit(value: Any, schema: Mapping[str, Any], at: str) -> str:
    """Return why a value does not fit a schema, with the place of the fault; empty if it fits."""
    return next(_misfits(value, schema, at), "")


def _misfits(value: Any, schema: Mapping[str, Any], at: str) -> Iterator[str]:
    kinds: Any = schema.get("type", [])
    listed = cast("list[str]", [kinds] if isinstance(kinds, str) else kinds)
    if listed and not any(_is(value, kind) for kind in listed):
        yield f"{at or 'they'} must be {' or '.join(listed)}, not {_quoted(value)}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{at} must be one of {', '.join(map(_quoted, schema['enum'][:20]))}, not {_quoted(value)}"
    if "const" in schema and value != schema["const"]:
        yield f"{at} must be {_quoted(schema['const'])}, not {_quoted(value)}"
    if (options := schema.get("anyOf")) and all(misfit(value, option, at) for option in options):
        yield misfit(value, options[0], at) if len(options) == 1 else f"{at or 'they'} fit none of its forms"
    yield from _out_of_bounds(value, schema, at)
    if isinstance(value, list):
        items = schema.get("items", {})
        for index, item in enumerate(cast("list[Any]", value)):
            yield from _misfits(item, items, f"{at}[{index}]")
    elif isinstance(value, dict):
        yield from _members(cast("dict[str, Any]", value), schema, at)


def _members(value: dict[str, Any], schema: Mapping[str, Any], at: str) -> Iterator[str]:
    properties: Mapping[str, Any] = schema.get("properties", {})
    prefix = f"{at}." if at else ""
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{prefix}{name} is missing"
    for name, item in value.items():
        if name in properties:
            yield from _misfits(item, properties[name], f"{prefix}{name}")
        elif schema.get("additionalProperties") is False:
            yield f"{prefix}{one_line(name, 60)} is not among {', '.join(properties) or 'its arguments: it has none'}"


def _out_of_bounds(value: Any, schema: Mapping[str, Any], at: str) -> Iterator[str]:
    if isinstance(value, int | float) and not isinstance(value, bool):
        for key, (holds, text) in _BOUNDS.items():
            if key in schema and not holds(value, schema[key]):
                yield f"{at} must be {text} {schema[key]}, not {value}"
    elif isinstance(value, str | list):
        size = len(cast("str | list[Any]", value))
        what, unit = ("Length", "characters") if isinstance(value, str) else ("Items", "items")
        if size < schema.get(f"min{what}", 0):
            yield f"{at} must have at least {schema[f'min{what}']} {unit}, not {size}"
        if size > schema.get(f"max{what}", size):
            yield f"{at} must have at most {schema[f'max{what}']} {unit}, not {size}"


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, TYPES[kind]) or (kind == "integer" and isinstance(value, float) and value.is_integer())


def _quoted(value: Any) -> str:
    return one_line(json.dumps(value, ensure_ascii=False, default=str), 60)


def signature(name: str, schema: Mapping[str, Any]) -> str:
    """Return a tool's call for the user: `search_papers(query, limit?=5)`."""
    required, parts = schema.get("required", ()), list[str]()
    for key, sub in cast("dict[str, dict[str, Any]]", schema.get("properties", {})).items():
        default = f"={_quoted(sub['default'])}" if "default" in sub else ""
        parts.append(f"{one_line(key, 60)}{'' if key in required else '?'}{default}")
    if schema.get("additionalProperties") is not False:
        parts.append("…")
    return f"{name}({', '.join(parts)})"
