"""JavaScript: the tool in a file, by what loading it in the sandbox has shown, and by the text of its function.

A function that declares no parameters has those of its JSDoc, else those that its code takes out of its argument.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from lmagent.core.errors import ConfigError
from lmagent.projects.tools.jsdoc import documented
from lmagent.projects.tools.schema import declared_schema, object_schema
from lmagent.projects.tools.spec import Declared

if TYPE_CHECKING:
    from tree_sitter import Node

PARSE_SECONDS = 5.0

_FUNCTIONS = ("arrow_function", "function_expression", "method_definition")
_TYPES = {bool: "boolean", int: "number", float: "number", str: "string", list: "array", dict: "object"}


class Facts(Struct, frozen=True):
    """The exported object of a file that was loaded; `execute` is the text of its function."""

    name: str
    description: str
    execute: str
    parameters: Any = None


class _Taken(Struct):
    """The parameters that a function takes, with their schemas.

    Attributes:
        needed: those that it takes out of its argument without a default.
        whole: it uses its argument in another way too, so it may take others.
    """

    properties: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    needed: dict[str, None] = field(default_factory=dict[str, None])
    whole: bool = False


def read_javascript(facts: Facts, source: str, where: str) -> Declared:
    """Return what a loaded file says about its tool. Raise ConfigError if its parameters cannot be followed."""
    if facts.parameters is not None:
        schema = declared_schema(facts.parameters, f"the parameters in {where}")
        return Declared(facts.name, facts.description, schema, "declared")
    taken = _taken(facts.execute, where)
    if noted := documented(_comment(facts.execute, source)):
        properties = {name: {**sub, **taken.properties.get(name, {}), **sub} for name, (sub, _) in noted.items()}
        required = [name for name, (_, needed) in noted.items() if needed and "default" not in properties[name]]
        schema = object_schema(properties, required, where)
        return Declared(facts.name, facts.description, schema, "its JSDoc", shown=True)
    schema = object_schema(taken.properties, list(taken.needed), where, open_ended=taken.whole)
    return Declared(facts.name, facts.description, schema, "inferred from its code", shown=True)


def _comment(function: str, source: str) -> str:
    """Return the JSDoc before a function, with only the head of its declaration between them."""
    before, _, _ = source.partition(function)
    end = before.rfind("*/")
    start = before.rfind("/**", 0, end) if end >= 0 else -1
    return before[start:end] if start >= 0 and not set(before[end + 2 :]) & set(";{}()") else ""


def _taken(text: str, where: str) -> _Taken:
    """Return the parameters that the text of a function takes; all, if it cannot be parsed as one."""
    taken = _Taken()
    for form in (f"({text})", f"({{{text}}})"):  # a method's text has no `function`
        root = _root(form, where)
        function = next((node for node in _walk(root) if node.type in _FUNCTIONS), None)
        if function is not None and not root.has_error:
            _of_function(function, taken)
            return taken
    taken.whole = True
    return taken


def _root(text: str, where: str) -> Node:
    import tree_sitter  # only for a project with such a tool
    import tree_sitter_javascript

    parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_javascript.language()))
    source, deadline = text.encode(), time.perf_counter() + PARSE_SECONDS
    try:
        return parser.parse(
            lambda offset, _point: source[offset : offset + 65_536],
            progress_callback=lambda _offset, _error: time.perf_counter() > deadline,
        ).root_node
    except ValueError:
        raise ConfigError(
            f"{where} takes too long to parse", fix="declare its parameters, or make it shorter"
        ) from None


def _of_function(function: Node, taken: _Taken) -> None:
    given = function.child_by_field_name("parameter")
    if given is None:
        listed = function.child_by_field_name("parameters")
        given = next((node for node in listed.named_children if node.type != "comment"), None) if listed else None
    if given is not None and given.type == "assignment_pattern":
        given = given.child_by_field_name("left")
    if given is None:
        return
    if given.type == "object_pattern":
        _of_pattern(given, taken)
        return
    taken.whole = given.type != "identifier"
    for node in _walk(function.child_by_field_name("body") or function):
        if node.type in ("identifier", "shorthand_property_identifier") and node.text == given.text:
            _of_use(node, taken)


def _of_use(node: Node, taken: _Taken) -> None:
    """Note a use of the argument: `const {…} = params || {}`, `params.name`, or any other."""
    at, parent = node, node.parent
    while parent is not None and parent.type == "binary_expression" and parent.child_by_field_name("left") == at:
        at, parent = parent, parent.parent
    target = parent.child_by_field_name("name") or parent.child_by_field_name("left") if parent is not None else None
    if target is not None and target.type == "object_pattern":
        _of_pattern(target, taken)
        return
    parent = node.parent
    if parent is not None and parent.type == "member_expression" and parent.child_by_field_name("object") == node:
        taken.properties.setdefault(_text(parent.child_by_field_name("property")), {})
    else:
        taken.whole = True


def _of_pattern(pattern: Node, taken: _Taken) -> None:
    """Note the parameters of `{a, b = 5, c: d, ...others}`."""
    for child in pattern.named_children:
        name, default = child, None
        if child.type == "object_assignment_pattern":
            name, default = child.child_by_field_name("left"), child.child_by_field_name("right")
        elif child.type == "pair_pattern":
            name, value = child.child_by_field_name("key"), child.child_by_field_name("value")
            default = value.child_by_field_name("right") if value is not None else None
        if name is None or name.type not in ("shorthand_property_identifier_pattern", "property_identifier"):
            taken.whole = taken.whole or child.type != "comment"
            continue
        taken.properties[_text(name)] = _by_default(_text(default)) if default is not None else {}
        if default is None:
            taken.needed[_text(name)] = None


def _by_default(text: str) -> dict[str, Any]:
    """Return the schema that a default gives; one that is no plain value gives none."""
    if not {'"', "\\"} & set(text):
        text = text.replace("'", '"')
    with contextlib.suppress(ValueError, RecursionError):
        value = json.loads(text)
        return {"type": _TYPES[type(value)], "default": value} if value is not None else {}
    return {}


def _walk(node: Node) -> Iterator[Node]:
    pending = [node]
    while pending:
        node = pending.pop()
        yield node
        pending += reversed(node.children)


def _text(node: Node | None) -> str:
    return (node.text or b"").decode("utf-8", "replace") if node is not None else ""
