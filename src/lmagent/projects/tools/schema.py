"""Schema: the parameters of a tool, and whether a call's arguments fit them.

A declaration is a JSON schema of type object, or a short form for each name: `limit: integer = 5 - how many`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, cast

from lmagent.core.errors import ConfigError, ToolError
from lmagent.core.repair import fit, fits
from lmagent.tools.sanitize import one_line

TYPES = ("string", "number", "integer", "boolean", "array", "object")

SHORT = f"TYPE, TYPE? or TYPE = DEFAULT, each with ` - text` after it; TYPE is {', '.join(TYPES)} or TYPE[]"

PARAMETERS = 64
"""Parameters of a tool."""

DESCRIBED = 300
"""Characters of a parameter's description: each is in every prompt."""

_SHORT = re.compile(
    r"(?P<type>[a-z]+)(?P<list>\[\])?(?P<optional>\?)?(?:\s*=\s*(?P<default>.+?))?(?:\s+-\s+(?P<text>.*))?",
    re.DOTALL,
)


def declared_schema(parameters: Any, where: str) -> dict[str, Any]:
    """Return the JSON schema of declared parameters. Raise ConfigError, which names `where` they are declared."""
    if not isinstance(parameters, Mapping):
        raise ConfigError(f"{where} are no mapping of names", fix="give a JSON schema of type object, or short forms")
    known = cast("dict[str, Any]", parameters)
    if known.get("type") == "object" and isinstance(known.get("properties", {}), Mapping):
        _check(known, where)
        object_schema(known.get("properties", {}), [], where)
        return known if "properties" in known else {**known, "properties": {}}
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
        schema = cast("dict[str, Any]", value)
        _check(schema, where)
        return schema, "default" not in schema
    found = _SHORT.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None or found["type"] not in TYPES:
        written = one_line(json.dumps(value, ensure_ascii=False, default=str), 60)
        raise ConfigError(f"{where} is {written}, which is no type", fix=f"write {SHORT}")
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
    if why := misfit(default, schema):
        raise ConfigError(f"{where} has a default that does not fit: {why}", fix="correct the default or the type")
    return {**schema, "default": default}, False


@cache
def _validator() -> Any:
    """Return the class that checks schemas and values. Patterns are not checked: one can take a search for ever."""
    from jsonschema import Draft202012Validator, validators  # slow to load, and few agents have own tools

    def unchecked(*_: Any) -> tuple[()]:
        return ()

    extend = cast("Any", validators).extend
    return extend(Draft202012Validator, {"pattern": unchecked, "patternProperties": unchecked})


def _check(schema: Mapping[str, Any], where: str) -> None:
    """Check that a schema is one, and refers to nothing outside of it. Raise ConfigError."""
    from jsonschema.exceptions import SchemaError

    try:
        _validator().check_schema(schema)
        reference = next((key for key in _keys(schema) if key in ("$ref", "$dynamicRef")), "")
    except SchemaError as wrong:
        at = _place(wrong.absolute_path)
        raise ConfigError(f"{where}: {one_line(f'{at} {wrong.message}', 300)}", fix="write a JSON schema") from None
    except RecursionError:
        raise ConfigError(f"{where} are nested too deep", fix="make them flatter") from None
    if reference:
        raise ConfigError(f"{where} has the key {reference!r}, which tools here cannot have", fix="write the part out")


def _keys(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        known = cast("Mapping[str, Any]", value)
        yield from known
        for inner in known.values():
            yield from _keys(inner)
    elif isinstance(value, list):
        for inner in cast("list[Any]", value):
            yield from _keys(inner)


def fitting(name: str, schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call, repaired where that leaves no doubt. Raise ToolError, which names the wrong one.

    A null for a parameter that may be left out is left out.
    """
    required, properties = schema.get("required", ()), schema.get("properties", {})
    given = {
        key: value
        for key, value in arguments.items()
        if value is not None or key in required or fits(None, properties.get(key))
    }
    repaired = fit(given, schema)
    if why := misfit(repaired, schema):
        raise ToolError(f"The arguments do not fit {name}: {why}. Nothing was run.", data={"code": "invalid_arguments"})
    return repaired


def misfit(value: Any, schema: Mapping[str, Any]) -> str:
    """Return why a value does not fit a schema, with the place of the fault; empty if it fits."""
    from jsonschema import exceptions

    wrong = cast("Any", exceptions).best_match(_validator()(schema).iter_errors(value))
    return one_line(f"{_place(wrong.absolute_path)} {wrong.message}".strip(), 300) if wrong is not None else ""


def _place(steps: Iterable[str | int]) -> str:
    """Return the way to a part as `tags[1].name:`; empty for the whole."""
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps).removeprefix(".")
    return f"{path}:" if path else ""


def signature(name: str, schema: Mapping[str, Any]) -> str:
    """Return a tool's call for the user: `search_papers(query, limit?=5)`."""
    required, parts = schema.get("required", ()), list[str]()
    for key, sub in cast("dict[str, Any]", schema.get("properties", {})).items():
        has_default = isinstance(sub, Mapping) and "default" in sub
        default = one_line(json.dumps(sub["default"], ensure_ascii=False, default=str), 60) if has_default else ""
        parts.append(f"{one_line(key, 60)}{'' if key in required else '?'}{f'={default}' if has_default else ''}")
    if schema.get("additionalProperties") is not False:
        parts.append("…")
    return f"{name}({', '.join(parts)})"
