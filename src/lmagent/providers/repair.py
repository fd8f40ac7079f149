"""Repair: arguments of the wrong type, put right where the tool's schema leaves no doubt.

A value that fits its schema is never touched. One that does not is tried in the forms that models confuse with each
other (a number as a string, one item for a list, JSON inside a string, another case of an enum's word); a form is kept
only if it then fits. Nothing is filled in and nothing is thrown away.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from lmagent.providers import jsontext
from lmagent.providers.formats.values import read_whole

Schema = Mapping[str, Any]

_DEPTH = 12
_WORDS: dict[str, Any] = {"true": True, "false": False, "null": None, "none": None}
_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


def fit(arguments: dict[str, Any], schema: Schema) -> dict[str, Any]:
    """The arguments of a call, each repaired if it does not fit the tool's schema and a repaired form does."""
    return {key: _fit(value, sub) for key, value, sub in _members(arguments, schema)}


def fit_object(value: Any, schema: Schema) -> dict[str, Any] | None:
    """The arguments that another value than an object was meant as: one inside a string, or none at all.

    Kept only if they then fit the tool's schema; None otherwise.
    """
    if isinstance(value, str) and value.strip():
        try:
            value = jsontext.loads(value.encode("utf-8", "surrogatepass"))
        except ValueError:
            return None
    elif value in (None, "", []):
        value = {}
    if not isinstance(value, dict):
        return None
    fitted = fit(cast("dict[str, Any]", value), schema)
    return fitted if fits(fitted, schema) else None


def fit_text(text: str, schema: Schema) -> Any:
    """A value that came as bare text (XML), in the type that its schema asks for.

    Text for a string stays as it is, and so does what the schema does not know or what fits no type of it.
    """
    kinds = types_of(schema)
    if not kinds:
        return text
    if "string" in kinds:
        return None if "null" in kinds and text.strip() in ("null", "None") else text
    return _fit(text, schema)


def fits(value: Any, schema: Any, depth: int = _DEPTH) -> bool:
    """Whether a value satisfies a schema, as far as types, enums, required keys and items go."""
    if not isinstance(schema, Mapping) or depth == 0:
        return True
    known = cast("Schema", schema)
    for key in ("anyOf", "oneOf"):
        options = known.get(key)
        if isinstance(options, list) and options:
            return any(fits(value, option, depth - 1) for option in cast("list[Any]", options))
    if "const" in known:
        return bool(value == known["const"])
    if isinstance(known.get("enum"), list) and value not in known["enum"]:
        return False
    kinds = types_of(known)
    if kinds and not any(_is(value, kind) for kind in kinds):
        return False
    return _inside(value, known, depth)


def types_of(schema: Any, depth: int = 4) -> frozenset[str]:
    """The type names that a schema allows; empty where it does not say."""
    if not isinstance(schema, Mapping) or depth == 0:
        return frozenset()
    known = cast("Schema", schema)
    kind = known.get("type")
    if isinstance(kind, str):
        return frozenset((kind,))
    if isinstance(kind, list):
        return frozenset(str(item) for item in cast("list[Any]", kind))
    for key in ("anyOf", "oneOf"):
        options = known.get(key)
        if isinstance(options, list):
            return frozenset[str]().union(*(types_of(option, depth - 1) for option in cast("list[Any]", options)))
    words = known.get("enum")
    if isinstance(words, list) and words and all(isinstance(word, str) for word in cast("list[Any]", words)):
        return frozenset(("string",))
    return frozenset()


def _inside(value: Any, schema: Schema, depth: int) -> bool:
    if isinstance(value, list):
        items = schema.get("items")
        return all(fits(item, items, depth - 1) for item in cast("list[Any]", value))
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        if any(name not in members for name in schema.get("required") or ()):
            return False
        return all(fits(item, sub, depth - 1) for _, item, sub in _members(members, schema))
    return True


def _members(value: dict[str, Any], schema: Schema) -> Iterator[tuple[str, Any, Any]]:
    properties = schema.get("properties")
    known: Schema = cast("Schema", properties) if isinstance(properties, Mapping) else {}
    for key, item in value.items():
        yield key, item, known.get(key)


def _fit(value: Any, schema: Any, depth: int = _DEPTH) -> Any:
    if depth == 0 or fits(value, schema):
        return value
    for form in _forms(value, cast("Schema", schema), depth - 1):
        if fits(form, schema):
            return form
    return value


def _forms(value: Any, schema: Schema, depth: int) -> Iterator[Any]:
    """What the value may have been meant as, the likeliest first."""
    kinds = types_of(schema)
    if isinstance(value, str):
        yield from _from_text(value, schema, kinds, depth)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        if isinstance(value, float) and value.is_integer():
            yield int(value)
        if "string" in kinds:
            yield str(value)
    elif isinstance(value, list):
        yield [_fit(item, schema.get("items"), depth) for item in cast("list[Any]", value)]
    elif isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        yield {key: _fit(item, sub, depth) for key, item, sub in _members(members, schema)}
    if "array" in kinds and not isinstance(value, list):
        yield [_fit(value, schema.get("items"), depth)]


def _from_text(text: str, schema: Schema, kinds: frozenset[str], depth: int) -> Iterator[Any]:
    bare = text.strip()
    yield bare
    for word in schema.get("enum") or ():
        if isinstance(word, str) and word.lower() == bare.lower():
            yield word
    if bare.lower() in _WORDS:
        yield _WORDS[bare.lower()]
    number = _number(bare)
    if number is not None:
        yield number
        if isinstance(number, float) and number.is_integer():
            yield int(number)
    if kinds & {"array", "object"} and bare[:1] in ("[", "{"):
        read, inner = read_whole(bare)
        if read:
            yield inner
            yield _fit(inner, schema, depth)


def _number(text: str) -> int | float | None:
    if not text or len(text) > 40 or text.lstrip("+-")[:1] not in tuple("0123456789."):
        return None
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return None


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "integer" and isinstance(value, float):
        return False
    return isinstance(value, _TYPES.get(kind, (object,)))
