"""Schemas: the JSON schema of a tool's arguments, in a form that small models read.

References are replaced by what they name, a choice with null by the other choice, long enums by their first words;
keys that only programs need are left out. The server checks the arguments itself, so nothing is lost but detail.
"""

from __future__ import annotations

from typing import Any, cast

from lmagent.tools.sanitize import one_line

DEPTH = 6
"""Levels of a schema that are shown; deeper ones accept everything."""

ENUM = 20
"""Values of an enum, and alternatives, that are shown."""

DESCRIBED = 200
"""Characters of the description of an argument."""

PIECES = 600
"""Parts of a schema that are shown; references that multiply end here."""

_PLAIN = ("const", "format", "minimum", "maximum", "minItems", "maxItems", "pattern")


def fault(schema: Any) -> str:
    """Return why no call could follow a schema; empty if one can. Only its outer form is looked at."""
    if not isinstance(schema, dict):
        return "its schema is no JSON object"
    known = cast("dict[str, Any]", schema)
    kind, properties = known.get("type", "object"), known.get("properties", {})
    if kind != "object":
        return f"its arguments are {one_line(str(kind), 40)}, not an object"
    if not isinstance(properties, dict):
        return "its properties are no JSON object"
    parts = cast("dict[str, Any]", properties)
    wrong = next((name for name, sub in parts.items() if not isinstance(sub, dict | bool)), None)
    return f"its argument {one_line(wrong, 60)} has no schema" if wrong is not None else ""


def simplified(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a usable schema as one of type object, with properties that are objects."""
    made = _Simplifier(schema).simple(schema, 0)
    properties = made.get("properties", {})
    result: dict[str, Any] = {"type": "object", "properties": properties}
    if required := [name for name in made.get("required", ()) if name in properties]:
        result["required"] = required
    if schema.get("additionalProperties") is False:
        result["additionalProperties"] = False
    return result


class _Simplifier:
    def __init__(self, whole: dict[str, Any]) -> None:
        self._whole = whole
        self._pieces = 0

    def simple(self, node: Any, depth: int) -> dict[str, Any]:
        self._pieces += 1
        if not isinstance(node, dict) or depth > DEPTH or self._pieces > PIECES:
            return {}  # it accepts everything
        known = cast("dict[str, Any]", node)
        if "$ref" in known:
            target = self._target(known["$ref"])
            return self._described(known, self.simple(target, depth + 1)) if target is not None else {}
        for key in ("anyOf", "oneOf"):
            if isinstance(known.get(key), list):
                return self._choice(known, known[key], depth)
        if isinstance(known.get("allOf"), list):
            return self._merged(known, depth)
        return self._plain(known, depth)

    def _target(self, reference: Any) -> Any:
        """Return the part of the schema that a reference names; None for one that leads elsewhere."""
        node: Any = self._whole
        if not isinstance(reference, str) or not reference.startswith("#"):
            return None
        for step in reference[1:].split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            if not isinstance(node, dict) or name not in node:
                return None
            node = cast("dict[str, Any]", node)[name]
        return node

    def _choice(self, known: dict[str, Any], options: list[Any], depth: int) -> dict[str, Any]:
        left = [self.simple(option, depth + 1) for option in options[:ENUM] if not _is_null(option)]
        distinct = [option for at, option in enumerate(left) if option not in left[:at]]
        if len(distinct) == 1:
            return self._described(known, distinct[0])
        words: dict[str, Any] = {"properties": known["properties"]} if "properties" in known else {}
        base = self._plain({**words, **({"type": known["type"]} if "type" in known else {})}, depth)
        return self._described(known, {**base, **({"anyOf": distinct} if distinct else {})})

    def _merged(self, known: dict[str, Any], depth: int) -> dict[str, Any]:
        merged = self._plain(known, depth)
        for part in (self.simple(option, depth + 1) for option in known["allOf"][:ENUM]):
            properties = {**merged.get("properties", {}), **part.get("properties", {})}
            required = [*merged.get("required", ()), *part.get("required", ())]
            merged = {**part, **merged}
            if properties:
                merged["properties"] = properties
            if required:
                merged["required"] = list(dict.fromkeys(required))
        return merged

    def _plain(self, known: dict[str, Any], depth: int) -> dict[str, Any]:
        made: dict[str, Any] = {}
        if (kind := _type_of(known)) is not None:
            made["type"] = kind
        made = self._described(known, made)
        made |= {key: known[key] for key in _PLAIN if isinstance(known.get(key), str | int | float | bool)}
        if isinstance(values := known.get("enum"), list):
            made |= _enum(cast("list[Any]", values), made.get("description", ""))
        if "properties" in known:
            made["properties"] = self._properties(known["properties"], depth)
            made.setdefault("type", "object")
        if isinstance(names := known.get("required"), list):
            made["required"] = [name for name in cast("list[Any]", names) if isinstance(name, str)]
        items = known.get("items")
        if isinstance(items, dict):
            made["items"] = self.simple(items, depth + 1)
        return made

    def _properties(self, properties: Any, depth: int) -> dict[str, Any]:
        if not isinstance(properties, dict):
            return {}
        known = cast("dict[str, Any]", properties)
        return {str(name): self.simple(sub, depth + 1) for name, sub in known.items() if sub is not False}

    @staticmethod
    def _described(known: dict[str, Any], made: dict[str, Any]) -> dict[str, Any]:
        text = known.get("description")
        return {**made, "description": one_line(text.strip(), DESCRIBED)} if isinstance(text, str) and text else made


def _is_null(option: Any) -> bool:
    return isinstance(option, dict) and cast("dict[str, Any]", option).get("type") == "null"


def _type_of(known: dict[str, Any]) -> str | list[str] | None:
    kind = known.get("type")
    if isinstance(kind, list):
        names = [name for name in cast("list[Any]", kind) if isinstance(name, str) and name != "null"]
        return names[0] if len(names) == 1 else names or None
    return kind if isinstance(kind, str) else None


def _enum(values: list[Any], description: str) -> dict[str, Any]:
    """Return the enum; of a long one, its first values as words, so that no other value is ruled out."""
    values = [value for value in values if value is not None]
    if len(values) <= ENUM:
        return {"enum": values} if values else {}
    words = ", ".join(one_line(str(value), 40) for value in values[:ENUM])
    return {"description": f"{description} One of {len(values)}: {words}, …".strip()}
