"""Enforce: `tool_choice` "required", a named tool and allowed tools, by a schema that the engine cannot leave.

The engine lets "required" talk without end before it calls, and takes a named choice for "auto". So the request asks
for one JSON object (a list of them, if several calls are allowed), and `CallReader` gives it back as calls:

    {"name": "read", "arguments": {"path": "a.py"}}

The tools stay in the request, so that the template renders them and the prompt is the same as with "auto".
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

from msgspec import Struct

from lmagent.core.ids import new_id
from lmagent.modelserver.errors import BadRequest
from lmagent.providers import jsontext

MOST_CALLS = 8
"""Calls in one reply where several are allowed; without a limit a weak model would not stop."""

_NO_ARGUMENTS: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}


class RequiredCalls(Struct, frozen=True):
    names: tuple[str, ...]  # of the tools, one of which has to be called
    many: bool = False  # several calls may come


def choice_of(body: Mapping[str, Any]) -> RequiredCalls | None:
    """Return the calls that a chat request insists on; None if the model may choose."""
    choice = body.get("tool_choice")
    tools = cast("list[dict[str, Any]]", body.get("tools") or [])
    names = tuple(dict.fromkeys(str(tool["function"]["name"]) for tool in tools))
    many = body.get("parallel_tool_calls") is True
    if choice in (None, "auto", "none"):
        return None
    if isinstance(choice, str):
        if choice != "required":
            raise _wrong(f'\'tool_choice\' is {choice!r}; it can be "auto", "none", "required" or a tool\'s name')
        if not names:
            raise _wrong("'tool_choice' is \"required\", and there are no tools to call")
        return RequiredCalls(names, many)
    wanted = _wanted(cast("dict[str, Any]", choice))
    if wanted is None:
        return None
    if missing := [name for name in wanted if name not in names]:
        raise _wrong(f"'tool_choice' names {missing[0]!r}, which is not among the tools: {', '.join(names) or 'none'}")
    return RequiredCalls(tuple(wanted), many and choice.get("type") != "function")


def _wanted(choice: dict[str, Any]) -> list[str] | None:
    """Return the tools that a choice names; None if it leaves the choice to the model."""
    match choice:
        case {"type": "function", "function": {"name": str(name)}} | {"type": "function", "name": str(name)}:
            return [name]
        case {"type": "allowed_tools"}:
            allowed = _allowed(choice)
            found = [_wanted(cast("dict[str, Any]", tool)) for tool in allowed["tools"]]
            names = [name for inner in found if inner for name in inner]
            if not names:
                raise _wrong("'tool_choice.allowed_tools' names no tools")
            return names if allowed.get("mode") == "required" else None
        case _:
            raise _wrong('\'tool_choice\' has to be {"type": "function", "function": {"name": …}}')


def _allowed(choice: dict[str, Any]) -> dict[str, Any]:
    allowed: Any = choice.get("allowed_tools") or choice
    if not isinstance(allowed, dict) or not isinstance(cast("dict[str, Any]", allowed).get("tools"), list):
        raise _wrong("'tool_choice.allowed_tools' has no list of tools")
    return cast("dict[str, Any]", allowed)


def allowed_only(body: dict[str, Any]) -> dict[str, Any]:
    """Translate "allowed tools" into a shorter list of tools, which the engine knows."""
    given = body.get("tool_choice")
    choice = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
    if choice.get("type") != "allowed_tools":
        return body
    names = {name for tool in _allowed(choice)["tools"] for name in _wanted(tool) or ()}
    kept = [tool for tool in body.get("tools") or () if tool["function"]["name"] in names]
    return {**body, "tools": kept, "tool_choice": "auto"}


def enforced(body: Mapping[str, Any], choice: RequiredCalls) -> dict[str, Any]:
    """Return the request that the engine gets."""
    chosen: dict[str, dict[str, Any]] = {}
    for tool in cast("list[dict[str, Any]]", body["tools"]):
        function = cast("dict[str, Any]", tool["function"])
        if function["name"] in choice.names:
            chosen.setdefault(function["name"], function)
    schema = calls_schema(list(chosen.values()), many=choice.many)
    left_out = ("tool_choice", "response_format", "parallel_tool_calls", "grammar", "json_schema")
    kept = {name: value for name, value in body.items() if name not in left_out}
    form = {"type": "json_schema", "json_schema": {"name": "call", "strict": True, "schema": schema}}
    return {**kept, "tool_choice": "none", "response_format": form}


def calls_schema(functions: Sequence[Mapping[str, Any]], *, many: bool = False) -> dict[str, Any]:
    """Return the schema of a call of one of the functions, or of a list of calls."""
    shared: dict[str, Any] = {}
    calls: list[dict[str, Any]] = []
    for number, function in enumerate(functions):
        parameters = cast("dict[str, Any]", function.get("parameters") or _NO_ARGUMENTS)
        if not parameters.get("properties") and "$ref" not in parameters and "anyOf" not in parameters:
            parameters = parameters if parameters.get("additionalProperties") else {**parameters, **_NO_ARGUMENTS}
        arguments = closed(parameters, strict=function.get("strict") is True)
        if _refers(arguments):
            # References begin at the root, which is ours: the schema moves, whole, to a place of its own there.
            place = f"tool{number}"
            shared[place] = _moved(arguments, f"#/$defs/{place}")
            arguments = {"$ref": f"#/$defs/{place}"}
        properties = {"name": {"const": function["name"]}, "arguments": arguments}
        required = ["name", "arguments"]
        calls.append({"type": "object", "properties": properties, "required": required, "additionalProperties": False})
    one = calls[0] if len(calls) == 1 else {"anyOf": calls}
    schema = {"type": "array", "items": one, "minItems": 1, "maxItems": MOST_CALLS} if many else one
    return {**schema, "$defs": shared} if shared else schema


def closed(schema: Any, *, strict: bool = False) -> Any:
    """Forbid unknown fields in objects, unless the schema allows them; strict objects need all fields."""
    if isinstance(schema, list):
        return [closed(item, strict=strict) for item in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    fields = dict(cast("dict[str, Any]", schema))
    for name in ("properties", "$defs", "definitions"):
        if isinstance(inner := fields.get(name), dict):
            fields[name] = {key: closed(part, strict=strict) for key, part in cast("dict[str, Any]", inner).items()}
    for name in ("items", "prefixItems", "anyOf", "oneOf"):
        if name in fields:
            fields[name] = closed(fields[name], strict=strict)
    if fields.get("properties") and "allOf" not in fields:
        if strict:
            fields |= {"additionalProperties": False, "required": list(fields["properties"])}
        else:
            fields.setdefault("additionalProperties", False)
    return fields


def _refers(schema: Any) -> bool:
    if isinstance(schema, dict):
        fields = cast("dict[str, Any]", schema)
        return isinstance(fields.get("$ref"), str) or any(map(_refers, fields.values()))
    return isinstance(schema, list) and any(map(_refers, cast("list[Any]", schema)))


def _moved(schema: Any, place: str) -> Any:
    if isinstance(schema, list):
        return [_moved(item, place) for item in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    moved = {name: _moved(value, place) for name, value in cast("dict[str, Any]", schema).items()}
    if isinstance(ref := moved.get("$ref"), str) and ref.startswith("#"):
        moved["$ref"] = place + ref[1:]
    return moved


def _wrong(message: str) -> BadRequest:
    return BadRequest(message, param="tool_choice", code="invalid_tool_choice")


_HEAD = re.compile(r'[\s\[,]*\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*"arguments"\s*:\s*')
_PLAIN = re.compile(r'[^"{}\[\]\s]+')
_IN_TEXT = re.compile(r'[^"\\]+')


class RequiredCall(Struct):
    """A call, as far as it was read."""

    name: str  # the tool
    id: str  # made up here; the model writes none
    arguments: str = ""  # JSON text without blanks between its parts
    whole: bool = False  # it came to its end


class CallPiece(Struct, frozen=True):
    """The part of a call that a piece of text added."""

    index: int  # which call
    call: RequiredCall | None = None  # set when it begins here
    arguments: str = ""


class CallReader:
    """A reader of one reply; `text` has all of it, for a reply that is no call after all."""

    def __init__(self) -> None:
        self.calls: list[RequiredCall] = []
        self.text = ""
        self._held: str = ""
        self._mode: Literal["head", "arguments", "tail"] = "head"
        self._depth: int = 0
        self._quoted: bool = False

    @property
    def whole(self) -> list[RequiredCall]:
        return [call for call in self.calls if call.whole]

    def feed(self, text: str) -> list[CallPiece]:
        self.text += text
        self._held += text
        pieces: list[CallPiece] = []
        while self._held:
            if self._mode == "head":
                if not (head := _HEAD.match(self._held)) or head.end() == len(self._held):
                    break  # blanks may still follow the colon
                self._held = self._held[head.end() :]
                name = str(jsontext.loads(head[1].encode("utf-8", "replace")))
                self.calls.append(RequiredCall(name, f"call_{new_id()}"))
                pieces.append(CallPiece(len(self.calls) - 1, self.calls[-1]))
                self._mode, self._depth, self._quoted = "arguments", 0, False
            elif self._mode == "arguments":
                if added := self._arguments():
                    self.calls[-1].arguments += added
                    pieces.append(CallPiece(len(self.calls) - 1, arguments=added))
                if self._mode == "arguments":
                    break
            else:
                after = self._held.lstrip()
                if not after.startswith("}"):
                    self._held = after
                    break
                self._held, self._mode = after[1:], "head"
        return pieces

    def _arguments(self) -> str:
        """Return the held text that belongs to the arguments, without blanks outside of strings."""
        held, at, found = self._held, 0, list[str]()
        while at < len(held):
            letter = held[at]
            if self._quoted:
                if letter == "\\":
                    if at + 1 == len(held):
                        break
                    found.append(held[at : at + 2])
                    at += 2
                    continue
                self._quoted = letter != '"'
                plain = _IN_TEXT.match(held, at)
                end = plain.end() if plain else at + 1
            elif letter.isspace():
                at += 1
                continue
            else:
                plain = _PLAIN.match(held, at)
                end = plain.end() if plain else at + 1
                self._quoted = letter == '"'
                self._depth += (letter in "{[") - (letter in "}]")
            found.append(held[at:end])
            at = end
            if self._depth <= 0 and not self._quoted:
                self.calls[-1].whole, self._mode = True, "tail"
                break
        self._held = held[at:]
        return "".join(found)
