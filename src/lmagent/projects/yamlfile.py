"""YAML files that people write: a value, and for each part of it the line and column where it stands.

Read as YAML 1.2's core schema has it: only `true` and `false` are truth values, so a name may be `on` or `no`, and a
date stays text. Keys are texts and stand once; there are no anchors, no tags, and one document.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar, cast

import msgspec
import yaml

from lmagent.core.decoding import convert
from lmagent.core.errors import ConfigError
from lmagent.projects.spec import MEANINGS, PART, VARIABLE
from lmagent.tools.sanitize import visible

T = TypeVar("T")

DEEPEST = 20
"""Levels of nesting."""

Place = tuple[str | int, ...]
"""Keys and positions from the top of the file to a value."""

_BOOLEAN = re.compile(r"true|True|TRUE|false|False|FALSE")
_AT = re.compile(r"(?P<what>.*?)(?: - at (?P<of_key>`key` in )?`(?P<where>[^`]*)`)?", re.DOTALL)
_ENUM = re.compile(r"Invalid enum value '(?P<value>.*)'", re.DOTALL)
_REGEX = re.compile(r"Expected `str` matching regex '(?P<regex>.*)'", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<key>.*)`", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(?P<key>.*)`", re.DOTALL)
_STEP = re.compile(r"\.(?P<key>[^.\[\]]+)|\[(?P<index>\d+|\.\.\.)\]")
_TYPES = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "keys and values",
}


class YamlPosition(NamedTuple):
    """A line and a column, both from 1."""

    line: int
    column: int


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader with the truth values of YAML 1.2, and without dates."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in pairs if not tag.endswith((":bool", ":timestamp", ":value"))]
    for first, pairs in cast("dict[str, list[tuple[str, Any]]]", yaml.SafeLoader.yaml_implicit_resolvers).items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", _BOOLEAN, list("tTfF"))  # pyright: ignore[reportUnknownMemberType]


class YamlFile:
    """A YAML file that was read.

    Attributes:
        name: how errors call the file.
        value: its content; None of an empty file.
    """

    def __init__(self, name: str, content: bytes) -> None:
        """Read `content`. Raise ConfigError, with line and column, if it is not such a file."""
        self.name = name
        self._marks: dict[Place, YamlPosition] = {(): YamlPosition(1, 1)}
        self._keys: dict[Place, YamlPosition] = {}
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError as wrong:
            line = content[: wrong.start].count(b"\n") + 1
            raise ConfigError(f"{name}:{line}: the file is not UTF-8", fix="save it as UTF-8") from None
        loader = _Loader(text)
        try:
            tokens = cast("Iterable[Any]", yaml.scan(text, _Loader))  # pyright: ignore[reportUnknownMemberType]
            for token in tokens:
                if isinstance(token, yaml.AliasToken | yaml.AnchorToken):
                    what = "anchors (&) and aliases (*) are not read; write the value out, or put the text in quotes"
                    raise self._wrong(
                        YamlPosition(token.start_mark.line + 1, token.start_mark.column + 1), what, "correct it"
                    )
            node = loader.get_single_node()
            self.value: Any = None if node is None else self._built(loader, node, ())
        except yaml.MarkedYAMLError as wrong:
            mark = wrong.problem_mark or wrong.context_mark
            at = f":{mark.line + 1}:{mark.column + 1}" if mark is not None else ""
            raise ConfigError(f"{name}{at}: {_reason(wrong)}", fix="correct the YAML there") from None
        except (yaml.YAMLError, RecursionError, ValueError) as wrong:
            first = str(wrong).strip().split("\n")[0]
            raise ConfigError(f"{name}: not valid YAML: {first}", fix="correct it") from None
        finally:
            cast("Any", loader).dispose()

    def _built(self, loader: _Loader, node: Any, place: Place) -> Any:
        """Return a node's value, and note where it and its parts stand."""
        here = YamlPosition(node.start_mark.line + 1, node.start_mark.column + 1)
        self._marks[place] = here
        if len(place) > DEEPEST:
            raise self._wrong(here, f"more than {DEEPEST} levels of nesting", "write it flatter")
        if isinstance(node, yaml.SequenceNode):
            return [self._built(loader, item, (*place, number)) for number, item in enumerate(node.value)]
        if not isinstance(node, yaml.MappingNode):
            return cast("Any", loader).construct_object(node)
        built = dict[str, Any]()
        for key_node, value_node in node.value:
            mark = YamlPosition(key_node.start_mark.line + 1, key_node.start_mark.column + 1)
            if not isinstance(key_node, yaml.ScalarNode) or key_node.tag == "tag:yaml.org,2002:merge":
                raise self._wrong(mark, "a key must be a text", "write a plain name before the colon")
            key = str(key_node.value)
            if key in built:
                raise self._wrong(mark, f"the key {key!r} is here twice", "keep one of them")
            self._keys[*place, key] = mark
            built[key] = self._built(loader, value_node, (*place, key))
        return built

    def _wrong(self, mark: YamlPosition, what: str, fix: str) -> ConfigError:
        return ConfigError(f"{self.name}:{mark.line}:{mark.column}: {what}", fix=fix)

    def wrong(self, place: Place, what: str, fix: str) -> ConfigError:
        """Return the error that names the line and column of a part; of a part that is not there, its surroundings'."""
        while place not in self._marks:
            place = place[:-1]
        return self._wrong(self._keys.get(place, self._marks[place]), what, fix)

    def __contains__(self, place: Place) -> bool:
        """Return whether the file has a value at a place."""
        return place in self._marks

    def as_type(self, type: type[T]) -> T:
        """Return the content as a type of msgspec. Raise ConfigError, with line and column, if it does not fit."""
        try:
            return convert({} if self.value is None else self.value, type)
        except msgspec.ValidationError as wrong:
            raise self._misfit(type, str(wrong)) from None

    def _misfit(self, type: Any, text: str) -> ConfigError:
        found = _AT.fullmatch(text)
        what, where, of_key = (found["what"], found["where"] or "$", found["of_key"]) if found else (text, "$", None)
        place, info = self._place_of(type, where)
        if of_key:  # the names of variables and of servers are the only keys with a form
            form = PART if place == ("mcp_servers",) else VARIABLE
            place = next(key for key in self._keys if key[:-1] == place and not re.search(form, str(key[-1])))
            key = visible(str(place[-1]))
            return self.wrong(place, f"{key!r} cannot be a key here", f"use {MEANINGS[form]}")
        if unknown := _UNKNOWN.fullmatch(what):
            known = [one.encode_name for one in _plain(info, _STRUCT).fields]
            what = f"there is no key {visible(unknown['key'])!r} here"
            return self.wrong((*place, unknown["key"]), what, nearest(unknown["key"], known, "the keys here are"))
        if missing := _MISSING.fullmatch(what):
            return self.wrong(place, f"the key {missing['key']!r} is missing here", f"add {missing['key']}: …")
        name = next((str(part) for part in reversed(place) if isinstance(part, str)), "the file")
        if enum := _ENUM.fullmatch(what):
            allowed = [str(value) for value in _plain(info, msgspec.inspect.LiteralType).values]
            return self.wrong(
                place, f"{name}: {visible(enum['value'])!r} is not known", nearest(enum["value"], allowed)
            )
        if pattern := _REGEX.fullmatch(what):
            regex = pattern["regex"].replace(r"\\", "\\")
            return self.wrong(place, f"{name}: the text has not the right form", f"write {MEANINGS[regex]}")
        what = re.sub("`([^`]*)`", lambda types: _type_names(types[1]), what)
        return self.wrong(place, f"{name}: {what[:1].lower()}{what[1:]}", "docs/agent-projects.md has all keys")

    def _place_of(self, type: Any, where: str) -> tuple[Place, Any]:
        """Return the place of msgspec's path, and the type that its value should have.

        `[...]` is any value of a mapping: the first that does not fit is meant.
        """
        place: Place = ()
        info: Any = msgspec.inspect.type_info(type)
        value: Any = {} if self.value is None else self.value
        for step in _STEP.finditer(where):
            if step["key"] is not None:
                key: Any = step["key"]
                info = next(one.type for one in _plain(info, _STRUCT).fields if one.encode_name == key)
            elif step["index"].isdigit():
                key, info = int(step["index"]), _plain(info, _LISTS).item_type
            else:
                info = _plain(info, msgspec.inspect.DictType).value_type
                key = next(one for one, inside in value.items() if not _fits(inside, info))
            place = (*place, cast("str | int", key))
            value = value[key]
        return place, info


_STRUCT = msgspec.inspect.StructType
_LISTS = (msgspec.inspect.ListType, msgspec.inspect.VarTupleType)


def nearest(name: str, known: Sequence[str], head: str = "it can be") -> str:
    """Return what to write in place of an unknown name."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"did you mean {near[0]}?" if near else f"{head}: {', '.join(known)}"


def _plain(info: Any, kinds: Any) -> Any:
    """Return a type, or the part of a union, of one of the kinds."""
    while isinstance(info, msgspec.inspect.Metadata):
        info = info.type
    if isinstance(info, msgspec.inspect.UnionType):
        return next(one for one in info.types if isinstance(one, kinds))
    return info


def _fits(value: Any, info: Any) -> bool:
    kinds = info.types if isinstance(info, msgspec.inspect.UnionType) else (info,)
    for kind in kinds:
        try:
            if isinstance(kind, _STRUCT):
                convert(value, kind.cls)
            elif isinstance(kind, _LISTS):
                convert(value, list[str])
            else:
                convert(value, str)
        except msgspec.ValidationError:
            continue
        return True
    return False


def _type_names(types: str) -> str:
    names = [_TYPES.get(one.strip(), one.strip()) for one in types.split("|") if one.strip() != "null"]
    return " or ".join(names)


def _reason(wrong: yaml.MarkedYAMLError) -> str:
    parts = [part for part in (wrong.context, wrong.problem) if part]
    return "not valid YAML: " + visible(", ".join(parts))


def as_mapping(value: Any) -> Mapping[str, Any]:
    """Return the value if it is a mapping, else an empty one."""
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}
