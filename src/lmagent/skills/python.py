"""Python: what a function needs to become a tool: types, a docstring, and a call that shows that it works."""

from __future__ import annotations

import ast
from typing import Any

from msgspec import Struct

from lmagent.core.errors import ConfigError

TYPES: dict[str, dict[str, Any]] = {
    "str": {"type": "string"},
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "bool": {"type": "boolean"},
    "list": {"type": "array"},
    "dict": {"type": "object"},
}
"""JSON types of the annotations that a parameter may have; with `[…]` and `| None` too."""

LONGEST = 300  # characters of a description: each is in every prompt


class Function(Struct, frozen=True):
    """A function as a tool: its description, the JSON schema of its arguments, and the examples of its docstring."""

    name: str
    description: str
    schema: dict[str, Any]
    examples: tuple[dict[str, Any], ...] = ()


def functions_in(code: str, source: str) -> list[str]:
    """Return the names of the public functions of a file. Raise ConfigError if it is no Python."""
    return [name for name in _functions(_parsed(code, source)) if not name.startswith("_")]


def function_in(code: str, name: str, source: str) -> Function:
    """Return a function of a file.

    Raises ConfigError: no Python, no such function, a type or the docstring is missing.
    """
    found = _functions(_parsed(code, source)).get(name)
    if found is None:
        there = ", ".join(functions_in(code, source)) or "none"
        raise ConfigError(f"{source} has no function {name!r} at its top level", fix=f"its functions: {there}")
    docstring = ast.get_docstring(found)
    if not docstring:
        raise ConfigError(f"{name} in {source} has no docstring", fix="say in it what the function does")
    if found.returns is None:
        raise ConfigError(f"{name} in {source} has no return type", fix=f"write `def {name}(…) -> str:`")
    description = " ".join(docstring.split("\n\n")[0].split())[:LONGEST]
    return Function(name, description, _schema(found, source), tuple(_examples(docstring, found)))


def _functions(tree: ast.Module) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef]:
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def _parsed(code: str, source: str) -> ast.Module:
    try:
        return ast.parse(code)
    except (SyntaxError, ValueError, RecursionError) as wrong:
        where = f", line {wrong.lineno}" if isinstance(wrong, SyntaxError) else ""
        raise ConfigError(f"{source} is no valid Python{where}: {wrong}", fix="correct it") from None


def _schema(function: ast.FunctionDef | ast.AsyncFunctionDef, source: str) -> dict[str, Any]:
    given = function.args
    if given.vararg or given.kwarg or given.posonlyargs:
        raise ConfigError(f"{function.name} in {source} takes * or / parameters", fix="name each parameter")
    defaults = [*[None] * (len(given.args) - len(given.defaults)), *given.defaults]
    pairs = [*zip(given.args, defaults, strict=True), *zip(given.kwonlyargs, given.kw_defaults, strict=True)]
    properties = {argument.arg: _type(argument, function.name, source) for argument, _ in pairs}
    needed = [argument.arg for argument, default in pairs if default is None]
    return {"type": "object", "properties": properties, "required": needed, "additionalProperties": False}


def _type(argument: ast.arg, function: str, source: str) -> dict[str, Any]:
    """Return the JSON type of a parameter, by its annotation, also where that is a text."""
    node = argument.annotation
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        node = _parsed(node.value, source).body[0]
        node = node.value if isinstance(node, ast.Expr) else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):  # `str | None`
        node = node.left
    item: dict[str, Any] = {}
    if isinstance(node, ast.Subscript):
        item = TYPES.get(getattr(node.slice, "id", ""), {})
        node = node.value
    found = TYPES.get(getattr(node, "id", ""))
    if found is None:
        known = ", ".join(TYPES)
        raise ConfigError(
            f"parameter {argument.arg!r} of {function} in {source} has no type that a tool can have",
            fix=f"use one of {known}",
        )
    return {**found, "items": item} if item and found["type"] == "array" else found


def _examples(docstring: str, function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[dict[str, Any]]:
    """Return the arguments of the calls after `>>>` in a docstring; others than constants are passed over."""
    names = [argument.arg for argument in (*function.args.args, *function.args.kwonlyargs)]
    found = list[dict[str, Any]]()
    for line in docstring.splitlines():
        if not line.strip().startswith(f">>> {function.name}("):
            continue
        try:
            call: Any = ast.parse(line.strip()[4:], mode="eval").body
            values = dict(zip(names, map(ast.literal_eval, call.args), strict=False))
            found.append(values | {word.arg: ast.literal_eval(word.value) for word in call.keywords if word.arg})
        except (SyntaxError, ValueError):
            continue
    return found
