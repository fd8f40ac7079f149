"""Python: the tool in a file, by a function's type hints. They are read from the syntax tree, so nothing of it runs."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from lmagent.core.docstrings import documented
from lmagent.core.errors import ConfigError
from lmagent.projects.tools.schema import DESCRIBED, misfit, object_schema
from lmagent.projects.tools.spec import Declared
from lmagent.tools.sanitize import one_line

DEPTH = 8
"""Levels of a type."""

_PLAIN: dict[str, dict[str, Any]] = {
    "str": {"type": "string"},
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "bool": {"type": "boolean"},
    "list": {"type": "array"},
    "List": {"type": "array"},
    "Sequence": {"type": "array"},
    "tuple": {"type": "array"},
    "set": {"type": "array"},
    "dict": {"type": "object"},
    "Dict": {"type": "object"},
    "Mapping": {"type": "object"},
    "None": {"type": "null"},
    "Any": {},
    "object": {},
}
_KNOWN = "str, int, float, bool, list[…], dict[str, …], Literal[…], … | None, or a dataclass of the file"

_Function = ast.FunctionDef | ast.AsyncFunctionDef


@lru_cache(maxsize=64)  # an agent's files are read at each look at it
def read_python(source: bytes, name: str, where: str) -> Declared:
    """Return the tool of a file: the function that `@tool` marks, or that has the name, or the only public one.

    Raises ConfigError.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as wrong:
        line = f", line {wrong.lineno}" if isinstance(wrong, SyntaxError) and wrong.lineno else ""
        raise ConfigError(f"{where}{line}, is no valid Python: {wrong}", fix="correct it") from None
    found = _chosen(tree, name, where)
    called, description = _marked(found)
    text, described = documented(ast.get_docstring(found) or "")
    schema = _Types(tree, f"{where}, {found.name}").schema(found, described)
    description = description or text.partition("\n")[0]
    return Declared(called or found.name, description, schema, "its type hints", function=found.name)


def _chosen(tree: ast.Module, name: str, where: str) -> _Function:
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    public = [node for node in functions if not node.name.startswith("_")]
    marked = [node for node in functions if any(_is_mark(mark) for mark in node.decorator_list)]
    for among in (marked, public):
        if len(among) == 1:
            return among[0]
        for node in among:
            if name in (node.name, _marked(node)[0]):
                return node
    names = ", ".join(node.name for node in marked or public) or "none"
    raise ConfigError(
        f"{where} has no function {name!r}, and more than one or none that it could mean (its functions: {names})",
        fix="mark the one with @tool, or name the others with _ at the beginning",
    )


def _is_mark(mark: ast.expr) -> bool:
    called = mark.func if isinstance(mark, ast.Call) else mark
    return (called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")) == "tool"


def _marked(function: _Function) -> tuple[str, str]:
    """Return the name and the description in `@tool(name="…", description="…")`."""
    words = {
        word.arg: word.value.value
        for mark in function.decorator_list
        if isinstance(mark, ast.Call) and _is_mark(mark)
        for word in mark.keywords
        if isinstance(word.value, ast.Constant)
    }
    return str(words.get("name", "")), str(words.get("description", ""))


class _Types:
    """Turns annotations into JSON schemas; a dataclass of the file is an object with its fields."""

    def __init__(self, tree: ast.Module, where: str) -> None:
        self._where = where
        self._classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}

    def schema(self, function: _Function, texts: Mapping[str, str]) -> dict[str, Any]:
        given = function.args
        if given.vararg or given.kwarg or given.posonlyargs:
            raise ConfigError(f"{self._where} takes * or / parameters", fix="name each parameter")
        defaults = [*[None] * (len(given.args) - len(given.defaults)), *given.defaults]
        pairs = [*zip(given.args, defaults, strict=True), *zip(given.kwonlyargs, given.kw_defaults, strict=True)]
        properties = dict[str, Any]()
        for argument, default in pairs:
            properties[argument.arg] = self._parameter(argument.arg, argument.annotation, default, texts)
        return object_schema(properties, [each.arg for each, default in pairs if default is None], self._where)

    def _parameter(
        self, name: str, annotation: ast.expr | None, default: ast.expr | None, texts: Mapping[str, str]
    ) -> dict[str, Any]:
        if annotation is None:
            raise ConfigError(f"{self._where}: the parameter {name!r} has no type", fix=f"use {_KNOWN}")
        schema = self._type(annotation, name, 0)
        if (text := texts.get(name)) and "description" not in schema:
            schema = {**schema, "description": one_line(text, DESCRIBED)}
        try:
            value = ast.literal_eval(default) if default is not None else None
        except ValueError:
            return schema  # it is computed
        shown = isinstance(value, str | int | float | bool | list | dict) and not misfit(value, schema)
        return {**schema, "default": value} if shown else schema

    def _type(self, node: ast.expr, name: str, depth: int) -> dict[str, Any]:
        if depth > DEPTH:
            raise ConfigError(f"{self._where}: the type of {name!r} is nested too deep", fix="make it flatter")
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            try:
                return self._type(ast.parse(node.value, mode="eval").body, name, depth + 1)
            except SyntaxError:
                raise self._unknown(node, name) from None
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            return self._union([node.left, node.right], name, depth)
        if isinstance(node, ast.Subscript):
            return self._generic(node, name, depth)
        called = _name(node)
        if called in _PLAIN:
            return dict(_PLAIN[called])
        if called in self._classes:
            return self._dataclass(self._classes[called], depth)
        raise self._unknown(node, name)

    def _generic(self, node: ast.Subscript, name: str, depth: int) -> dict[str, Any]:
        called = _name(node.value)
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if called == "Literal":
            return self._literal(node, parts)
        if called in ("Union", "Optional"):
            return self._union([*parts, *([ast.Constant(None)] if called == "Optional" else [])], name, depth)
        if called == "Annotated":
            texts = [part.value for part in parts[1:] if isinstance(part, ast.Constant) and isinstance(part.value, str)]
            schema = self._type(parts[0], name, depth + 1)
            return {**schema, "description": one_line(texts[0].strip(), DESCRIBED)} if texts else schema
        kind = _PLAIN.get(called, {}).get("type")
        if kind == "array":
            return {"type": "array", "items": self._type(parts[0], name, depth + 1)}
        if kind == "object" and len(parts) == 2 and _name(parts[0]) == "str":
            self._type(parts[1], name, depth + 1)
            return {"type": "object"}
        raise self._unknown(node, name)

    def _literal(self, node: ast.Subscript, parts: list[ast.expr]) -> dict[str, Any]:
        values = [part.value for part in parts if isinstance(part, ast.Constant)]
        if len(values) != len(parts):
            raise self._unknown(node, "Literal")
        kinds = {type(value).__name__ for value in values}
        return {**(_PLAIN.get(kinds.pop(), {}) if len(kinds) == 1 else {}), "enum": values}

    def _union(self, parts: list[ast.expr], name: str, depth: int) -> dict[str, Any]:
        kinds = [self._type(part, name, depth + 1) for part in parts]
        left = [kind for kind in kinds if kind != _PLAIN["None"]]
        if len(left) == 1:
            return left[0]  # a null is left out, so that the default holds
        return {"anyOf": [option for kind in left for option in kind.get("anyOf", [kind])]}

    def _dataclass(self, node: ast.ClassDef, depth: int) -> dict[str, Any]:
        if not any(
            _name(mark.func if isinstance(mark, ast.Call) else mark) == "dataclass" for mark in node.decorator_list
        ):
            raise ConfigError(f"{self._where}: the class {node.name} is no dataclass", fix="mark it with @dataclass")
        fields = [part for part in node.body if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name)]
        properties = dict[str, Any]()
        for part in fields:
            properties[_name(part.target)] = self._type(part.annotation, f"{node.name}.{_name(part.target)}", depth + 1)
        return object_schema(properties, [_name(part.target) for part in fields if part.value is None], self._where)

    def _unknown(self, node: ast.expr, name: str) -> ConfigError:
        written = one_line(ast.unparse(node), 60)
        return ConfigError(
            f"{self._where}: the parameter {name!r} has the type {written}, which a tool cannot have",
            fix=f"use {_KNOWN}",
        )


def _name(node: ast.expr) -> str:
    """Return the last part of a name: `typing.Any` is Any."""
    if isinstance(node, ast.Constant) and node.value is None:
        return "None"
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
