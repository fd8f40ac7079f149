"""Repair: a model's arguments, corrected where the text and the tool's schema leave no doubt.

`read_arguments` reads their text, native calls and those in text alike. `fit` corrects their types: a value that fits
its schema is never touched; one that does not is tried in the forms that models confuse with each other (a number or a
boolean for a string and the other way round, one item for a list and the other way round, JSON inside a string, another
case of an enum's word), and a form is kept only if it then fits. Nothing is filled in and nothing is thrown away.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

from lmagent.core.loosejson import Broken, Cut, completed, is_json, read_whole

Schema = Mapping[str, Any]

_END = "\0end of the arguments\0"
"""Added to arguments that are known to be whole; it closes brackets that were left open."""
_OPEN_END = re.compile(r"[\d.,:+-]\s*\Z")
"""Endings after which more may have been meant: a number, a comma."""
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
    """Repair each argument that does not fit the tool's schema, if a repaired form does."""
    return {key: _fit(value, sub) for key, value, sub in _members(arguments, schema)}


def read_arguments(text: str, schema: Schema | None = None, *, whole: bool = False) -> dict[str, Any] | None:
    """Read the arguments in a text; None if it is not plainly complete, or no object.

    A value that is no object is kept only if the object that it was meant as fits the schema: one inside a string or a
    list, or none at all.

    Args:
        text: as it came.
        schema: the tool's; None for an unknown tool.
        whole: nothing was cut off after the text, so that brackets missing at its end were only forgotten.
    """
    found, value = read_whole(text)
    if not found and whole:
        found, value = _closed(text.strip())
    if not found:
        return None
    if isinstance(value, dict):
        return fit(cast("dict[str, Any]", value), schema or {})
    if schema is None:
        return None
    meant = _meant(value)
    fitted = None if meant is None else fit(meant, schema)
    return fitted if fits(fitted, schema) else None


def _closed(text: str) -> tuple[bool, Any]:
    """Read a text that lacks only brackets at its end."""
    if _OPEN_END.search(text) or _END in text:
        return False, None
    try:
        value, end, _ = completed(text + _END, 0, (_END,))
    except (Cut, Broken):
        return False, None
    return (True, value) if end == len(text) and is_json(value) else (False, None)


def _meant(value: Any) -> dict[str, Any] | None:
    """Return the object that another value was meant as."""
    if value in (None, "", []):
        return {}
    if isinstance(value, str):
        _, value = read_whole(value)
    elif isinstance(value, list) and len(cast("list[Any]", value)) == 1:
        value = cast("list[Any]", value)[0]
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def fit_text(text: str, schema: Schema) -> Any:
    """Convert bare text (XML) to the type that its schema asks for.

    Text for a string stays unchanged, and so does a text for an unknown or unfitting type.
    """
    kinds = types_of(schema)
    if not kinds:
        return text
    if "string" in kinds:
        return None if "null" in kinds and text.strip() in ("null", "None") else text
    return _fit(text, schema)


def fits(value: Any, schema: Any) -> bool:
    """Whether a value satisfies a schema, as far as types, enums, required keys and items go."""
    if not isinstance(schema, Mapping):
        return True
    known = cast("Schema", schema)
    for key in ("anyOf", "oneOf"):
        options = known.get(key)
        if isinstance(options, list) and options:
            return any(fits(value, option) for option in cast("list[Any]", options))
    if "const" in known:
        return bool(value == known["const"])
    if isinstance(known.get("enum"), list) and value not in known["enum"]:
        return False
    kinds = types_of(known)
    if kinds and not any(_is(value, kind) for kind in kinds):
        return False
    return _inside(value, known)


def types_of(schema: Any) -> frozenset[str]:
    """Return the type names that a schema allows; empty if it does not say."""
    if not isinstance(schema, Mapping):
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
            return frozenset[str]().union(*(types_of(option) for option in cast("list[Any]", options)))
    words = known.get("enum")
    if isinstance(words, list) and words and all(isinstance(word, str) for word in cast("list[Any]", words)):
        return frozenset(("string",))
    return frozenset()


def _inside(value: Any, schema: Schema) -> bool:
    if isinstance(value, list):
        items = schema.get("items")
        return all(fits(item, items) for item in cast("list[Any]", value))
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        if any(name not in members for name in schema.get("required") or ()):
            return False
        return all(fits(item, sub) for _, item, sub in _members(members, schema))
    return True


def _members(value: dict[str, Any], schema: Schema) -> Iterator[tuple[str, Any, Any]]:
    properties = schema.get("properties")
    known: Schema = cast("Schema", properties) if isinstance(properties, Mapping) else {}
    for key, item in value.items():
        yield key, item, known.get(key)


def _fit(value: Any, schema: Any) -> Any:
    if fits(value, schema):
        return value
    return next((form for form in _forms(value, schema) if fits(form, schema)), value)


def _forms(value: Any, schema: Schema) -> Iterator[Any]:
    """Yield the values that it may have been meant as, the likeliest first."""
    kinds = types_of(schema)
    if isinstance(value, str):
        yield from _from_text(value, schema, kinds)
    elif isinstance(value, bool):
        yield str(value).lower()
    elif isinstance(value, int | float):
        if isinstance(value, float) and value.is_integer():
            yield int(value)
        if "string" in kinds:
            yield str(value)
    elif isinstance(value, list):
        items = cast("list[Any]", value)
        yield [_fit(item, schema.get("items")) for item in items]
        if len(items) == 1 and not isinstance(items[0], list):
            yield _fit(items[0], schema)
    elif isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        yield {key: _fit(item, sub) for key, item, sub in _members(members, schema)}
    if "array" in kinds and not isinstance(value, list):
        yield [_fit(value, schema.get("items"))]


def _from_text(text: str, schema: Schema, kinds: frozenset[str]) -> Iterator[Any]:
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
            yield _fit(inner, schema)


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
