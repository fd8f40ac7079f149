"""JavaScript: what a tool's file says about it, read from its syntax tree, so that nothing of it runs.

A file that computes its name, description or parameters has to be loaded, in the sandbox.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct, field

from lmagent.core.errors import ConfigError
from lmagent.projects.tools.jsdoc import documented
from lmagent.projects.tools.schema import declared_schema, object_schema
from lmagent.projects.tools.spec import Declared

if TYPE_CHECKING:
    from tree_sitter import Node

PARSE_SECONDS = 5.0
DEPTH = 30
"""Levels of a constant that are read."""

_FUNCTIONS = ("arrow_function", "function_expression", "function_declaration", "method_definition")
_GUARDS = ("||", "??", "&&", "===", "!==", "==", "!=")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "0": "\0", "\n": ""}
_LITERALS: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (bool, "boolean"),
    ((int, float), "number"),
    (str, "string"),
    (list, "array"),
    (dict, "object"),
)


class NotConstant(Exception):
    """The file computes what it says about itself."""


class _Used(Struct):
    """The parameters that a function uses.

    Attributes:
        defaults: by their names; a parameter without one is in `needed` or is tested before it is used.
        whole: the function passes its parameter on, so it may use others.
    """

    names: dict[str, None] = field(default_factory=dict[str, None])
    needed: set[str] = field(default_factory=set[str])
    tested: set[str] = field(default_factory=set[str])
    defaults: dict[str, Any] = field(default_factory=dict[str, Any])
    whole: bool = False


@lru_cache(maxsize=64)  # an agent's files are read at each look at it
def read_javascript(source: bytes, where: str) -> Declared | None:
    """Return the tool of a file; None if the file has to be loaded. Raise ConfigError if it has no tool."""
    root = _root(source, where)
    try:
        return _read(root, where)
    except NotConstant:
        if _is_module(root):
            raise ConfigError(
                f"{where} is an ES module", fix="write module.exports = {name, description, execute}"
            ) from None
        return None


def _read(root: Node, where: str) -> Declared:
    members = _exported(root)
    if "execute" not in members:
        raise NotConstant
    name, description = (_constant(members[key], root) if key in members else "" for key in ("name", "description"))
    parameters = _constant(members["parameters"], root) if "parameters" in members else None
    function = _function(members["execute"], root)
    if not isinstance(name, str) or not isinstance(description, str):
        raise ConfigError(f"{where} has a name or a description that is no text", fix="write a text in quotes")
    comment = _comment(members["execute"]) or _comment(function)
    return described(name, description, parameters, function, where, comment)


def read_loaded(facts: dict[str, Any], where: str) -> Declared:
    """Return what a file says about its tool, by the facts that loading it has shown. Raise ConfigError."""
    text = str(facts["execute"])
    function: Node | None = None
    for form in (f"({text})", f"({{{text}}})"):
        root = _root(form.encode(), where, strict=False)
        if not root.has_error:
            function = next((node for node in _walk(root) if node.type in _FUNCTIONS), None)
            break
    return described(str(facts["name"]), str(facts["description"]), facts["parameters"], function, where, "")


def described(
    name: str, description: str, parameters: Any, function: Node | None, where: str, comment: str
) -> Declared:
    """Return the tool with the parameters that are declared, else those of its JSDoc, else those that it uses."""
    if parameters is not None:
        return Declared(name, description, declared_schema(parameters, f"the parameters in {where}"), "declared")
    used = _uses(function) if function is not None else _Used(whole=True)
    if noted := documented(comment):
        properties = {key: _with_default(sub, used, key) for key, (sub, _) in noted.items()}
        required = [key for key, (_, needed) in noted.items() if needed and key not in used.defaults]
        return Declared(name, description, object_schema(properties, required, where), "its JSDoc", shown=True)
    properties = {key: _with_default({}, used, key) for key in used.names}
    required = [key for key in used.names if key in used.needed and key not in used.tested and key not in used.defaults]
    schema = object_schema(properties, required, where, open_ended=used.whole)
    return Declared(name, description, schema, "inferred from its code", shown=True)


def _with_default(schema: dict[str, Any], used: _Used, name: str) -> dict[str, Any]:
    if name not in used.defaults or (value := used.defaults[name]) is None:
        return schema
    kind = next((kind for form, kind in _LITERALS if isinstance(value, form)), "")
    return {"type": kind, **schema, "default": value}


# --- the exported object ----------------------------------------------------------------------------------------------


def _root(source: bytes, where: str, *, strict: bool = True) -> Node:
    import tree_sitter  # only for a project with such a tool
    import tree_sitter_javascript

    parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_javascript.language()))
    deadline = time.perf_counter() + PARSE_SECONDS
    try:
        root = parser.parse(
            lambda offset, _point: source[offset : offset + 65_536],
            progress_callback=lambda _offset, _error: time.perf_counter() > deadline,
        ).root_node
    except ValueError:
        raise ConfigError(f"{where} takes too long to parse", fix="make it shorter") from None
    if strict and root.has_error:
        wrong = next((node for node in _walk(root) if node.is_error or node.is_missing), root)
        line = wrong.start_point[0] + 1
        raise ConfigError(f"{where}, line {line}, is no valid JavaScript", fix="correct it; TypeScript is not run")
    return root


def _walk(node: Node) -> Iterator[Node]:
    pending = [node]
    while pending:
        node = pending.pop()
        yield node
        pending += reversed(node.children)


def _text(node: Node | None) -> str:
    return (node.text or b"").decode("utf-8", "replace") if node is not None else ""


def _field(node: Node, name: str) -> Node:
    found = node.child_by_field_name(name)
    if found is None:
        raise NotConstant
    return found


def _is_module(root: Node) -> bool:
    return any(node.type in ("export_statement", "import_statement") for node in root.children)


def _exported(root: Node) -> dict[str, Node]:
    """Return the members of the exported object: `module.exports = {…}`, and `exports.name = …`."""
    members: dict[str, Node] = {}
    for statement in root.children:
        node = statement.named_children[0] if statement.type == "expression_statement" else None
        if node is None or node.type != "assignment_expression":
            continue
        target, value = _text(_field(node, "left")), _field(node, "right")
        if target == "module.exports":
            members = _members(_resolved(value, root, 0), root)
        elif target.startswith(("exports.", "module.exports.")):
            members[target.rpartition(".")[2]] = value
    return members


def _members(node: Node, root: Node) -> dict[str, Node]:
    if node.type != "object":
        raise NotConstant
    found: dict[str, Node] = {}
    for child in node.named_children:
        if child.type == "pair":
            found[_key(_field(child, "key"))] = _field(child, "value")
        elif child.type == "method_definition":
            found[_key(_field(child, "name"))] = child
        elif child.type == "shorthand_property_identifier":
            found[_text(child)] = _resolved(child, root, 0)
        elif child.type != "comment":
            raise NotConstant  # `...others`
    return found


def _key(node: Node) -> str:
    if node.type in ("property_identifier", "number"):
        return _text(node)
    if node.type == "string":
        return _string(node)
    raise NotConstant


def _resolved(node: Node, root: Node, depth: int) -> Node:
    """Return the value of a name at the file's top level; other expressions are returned."""
    while node.type == "parenthesized_expression" and node.named_child_count == 1:
        node = node.named_children[0]
    if node.type not in ("identifier", "shorthand_property_identifier"):
        return node
    name = _text(node)
    for statement in root.children if depth < DEPTH else ():
        if statement.type == "function_declaration" and _text(_field(statement, "name")) == name:
            return statement
        if statement.type == "lexical_declaration" and _text(statement.children[0]) == "const":
            for part in statement.named_children:
                if part.type == "variable_declarator" and _text(_field(part, "name")) == name:
                    return _resolved(_field(part, "value"), root, depth + 1)
    raise NotConstant


def _function(node: Node, root: Node) -> Node:
    found = _resolved(node, root, 0)
    if found.type not in _FUNCTIONS:
        raise NotConstant
    return found


def _comment(node: Node) -> str:
    """Return the comment before a node, or before the statement or the member that it is in."""
    at: Node | None = node
    while at is not None and at.type != "program":
        before = at.prev_named_sibling
        if before is not None and before.type == "comment":
            return _text(before)
        if at.type in ("pair", "lexical_declaration", "expression_statement", "function_declaration"):
            return ""
        at = at.parent
    return ""


# --- constants --------------------------------------------------------------------------------------------------------


def _constant(node: Node, root: Node, depth: int = 0) -> Any:
    """Return the value of a constant. Raise NotConstant for an expression that has to be computed."""
    node = _resolved(node, root, depth)
    if depth > DEPTH:
        raise NotConstant
    kind = node.type
    if kind in ("string", "template_string"):
        return _string(node)
    if kind in ("true", "false", "null", "undefined"):
        return {"true": True, "false": False}.get(kind)
    if kind == "number":
        return _number(_text(node))
    if kind == "array":
        return [_constant(item, root, depth + 1) for item in node.named_children if item.type != "comment"]
    if kind == "object":
        return {key: _constant(value, root, depth + 1) for key, value in _members(node, root).items()}
    if kind == "unary_expression" and _text(_field(node, "operator")) == "-":
        value = _constant(_field(node, "argument"), root, depth + 1)
        if isinstance(value, int | float):
            return -value
    if kind == "binary_expression" and _text(_field(node, "operator")) == "+":
        left, right = (_constant(_field(node, side), root, depth + 1) for side in ("left", "right"))
        if isinstance(left, str) and isinstance(right, str):
            return left + right
    raise NotConstant


def _number(text: str) -> int | float:
    plain = text.replace("_", "")
    try:
        return int(plain, 0) if plain[:2].lower() in ("0x", "0o", "0b") or plain.isdigit() else float(plain)
    except ValueError:
        raise NotConstant from None


def _string(node: Node) -> str:
    parts = list[str]()
    for child in node.named_children:
        if child.type == "string_fragment":
            parts.append(_text(child))
        elif child.type == "escape_sequence":
            parts.append(_escape(_text(child)))
        else:
            raise NotConstant  # `${…}`
    return "".join(parts)


def _escape(text: str) -> str:
    code = re.fullmatch(r"\\(?:x|u)\{?([0-9a-fA-F]+)\}?", text)
    if code is not None:
        return chr(int(code[1], 16)) if int(code[1], 16) <= 0x10FFFF else "\ufffd"
    return _ESCAPES.get(text[1:], text[1:])


# --- the parameters that a function uses ------------------------------------------------------------------------------


def _uses(function: Node) -> _Used:
    used = _Used()
    first = function.child_by_field_name("parameter")
    if first is None:
        given = [node for node in _field(function, "parameters").named_children if node.type != "comment"]
        if not given:
            return used
        first = given[0]
    if first.type == "assignment_pattern":
        first = _field(first, "left")
    if first.type == "object_pattern":
        _pattern(first, used)
    elif first.type == "identifier":
        _body(_field(function, "body"), _text(first), used)
    else:
        used.whole = True
    return used


def _pattern(node: Node, used: _Used) -> None:
    """Note the parameters of `{a, b = 5, c: d, ...others}`."""
    for child in node.named_children:
        if child.type == "rest_pattern":
            used.whole = True
            continue
        name, default = child, None
        if child.type == "object_assignment_pattern":
            name, default = _field(child, "left"), _field(child, "right")
        elif child.type == "pair_pattern":
            name, value = _field(child, "key"), _field(child, "value")
            default = value.child_by_field_name("right") if value.type == "assignment_pattern" else None
        if name.type in ("shorthand_property_identifier_pattern", "property_identifier", "string"):
            _note(used, _string(name) if name.type == "string" else _text(name), default)
        elif name.type != "comment":
            used.whole = True


def _note(used: _Used, name: str, default: Node | None) -> None:
    used.names[name] = None
    if default is None:
        used.needed.add(name)
        return
    try:
        used.defaults[name] = _constant(default, default)
    except NotConstant:
        used.defaults[name] = None


def _body(body: Node, name: str, used: _Used) -> None:
    """Note the parameters that a function's body takes out of its first parameter."""
    pending = [body]
    while pending:
        node = pending.pop()
        if node.type in _FUNCTIONS and _hides(node, name):
            continue
        if node.type in ("identifier", "shorthand_property_identifier") and _text(node) == name:
            _use(node, used)
            continue
        pending += reversed(node.named_children)


def _hides(function: Node, name: str) -> bool:
    given = function.child_by_field_name("parameter") or function.child_by_field_name("parameters")
    return given is not None and any(node.type == "identifier" and _text(node) == name for node in _walk(given))


def _use(node: Node, used: _Used) -> None:
    """Note one use of the first parameter."""
    at, parent = node, node.parent
    while (
        parent is not None and parent.type == "binary_expression" and _text(_field(parent, "operator")) in ("||", "??")
    ):
        at, parent = parent, parent.parent  # `const {a} = params || {}`
    if parent is None:
        return
    if parent.type == "variable_declarator" and parent.child_by_field_name("value") == at:
        target = _field(parent, "name")
    elif parent.type == "assignment_expression" and parent.child_by_field_name("right") == at:
        target = _field(parent, "left")
    else:
        target = None
    if target is not None and target.type == "object_pattern":
        _pattern(target, used)
        return
    parent = node.parent
    if parent is None or parent.child_by_field_name("object") != node:
        used.whole = used.whole or not _is_test(node)
        return
    if parent.type == "member_expression":
        _member(parent, _text(_field(parent, "property")), used)
    elif parent.type == "subscript_expression" and (index := _field(parent, "index")).type == "string":
        _member(parent, _string(index), used)
    else:
        used.whole = True


def _member(node: Node, name: str, used: _Used) -> None:
    """Note `params.name`; `params.name ?? 5` gives it a default, and a test of it makes it optional."""
    parent, operator = node.parent, ""
    if parent is not None and parent.type == "binary_expression":
        operator = _text(_field(parent, "operator"))
    if parent is not None and operator in ("||", "??") and parent.child_by_field_name("left") == node:
        _note(used, name, _field(parent, "right"))
        return
    used.names[name] = None
    (used.tested if _is_test(node) else used.needed).add(name)


def _is_test(node: Node) -> bool:
    parent = node.parent
    if parent is None:
        return False
    if parent.type == "binary_expression":
        return _text(_field(parent, "operator")) in _GUARDS
    if parent.type == "parenthesized_expression":
        outer = parent.parent
        return outer is not None and outer.type in ("if_statement", "while_statement")
    if parent.type == "ternary_expression":
        return cast("Any", parent.child_by_field_name("condition")) == node
    return parent.type == "unary_expression"
