"""Constrained calls: a schema that lets a model write nothing but a valid call of one of the tools, or an answer.

For models that fail to call by themselves. The server enforces the schema while the model writes, so the reply always
parses. A model that thinks gets room for it: the thought is a text of its own and comes first.

    {"thought": "…", "tool": "read", "arguments": {"path": "a.py"}}
    {"thought": "…", "answer": "…"}
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import replace

from lmagent.core.ids import new_id
from lmagent.core.messages import Message, Part, Text, Thinking, ToolCall
from lmagent.core.model import Reply, ToolSpec
from lmagent.providers import jsontext

_TEXT: dict[str, Any] = {"type": "string"}
_NAMED = re.compile(r'"tool"\s*:\s*"([^"]+)"\s*,?\s*(?:"arguments"\s*:\s*)?')
_ANSWER = re.compile(r'"answer"\s*:\s*"(.*)', re.DOTALL)


class Constrained(Struct, frozen=True):
    """A constrained reply, understood.

    Attributes:
        thought: what it thought.
        text: its answer; empty when it calls.
        call: its call.
    """

    thought: str = ""
    text: str = ""
    call: ToolCall | None = None


def schema_for(tools: Sequence[ToolSpec], *, think: bool) -> dict[str, Any]:
    """The schema of a reply.

    Args:
        tools: what may be called.
        think: the reply begins with a thought.
    """
    first: dict[str, Any] = {"thought": _TEXT} if think else {}
    calls = [_object({**first, "tool": {"const": tool.name}, "arguments": _closed(tool.parameters)}) for tool in tools]
    return {"anyOf": [*calls, _object({**first, "answer": _TEXT})]}


def thinks(messages: Sequence[Message]) -> bool:
    """Whether the model has thought in this conversation."""
    return any(isinstance(part, Thinking) for message in messages for part in message.parts)


def understood(reply: Reply) -> Reply:
    """A constrained reply as any other: with a call, or with text. One that is not of that form stays as it is."""
    message = reply.message
    if message.tool_calls or not message.text.strip():
        return reply
    if reply.finish_reason == "length":
        return _cut_off(reply)
    found = read(message.text)
    if found is None:
        return reply
    parts: list[Part] = [part for part in message.parts if isinstance(part, Thinking)]
    if found.thought.strip():
        parts.append(Thinking(found.thought))
    if found.call is not None:
        return replace(reply, message=Message("assistant", (*parts, found.call)), finish_reason="tool_calls")
    return replace(reply, message=Message("assistant", (*parts, Text(found.text))))


def _cut_off(reply: Reply) -> Reply:
    """What the token limit left of it: a call that must not run, or the beginning of an answer."""
    text = reply.message.text
    if named := _NAMED.search(text):
        call = ToolCall(f"call_{new_id()}", named[1], text[named.end() :])
        message = Message("assistant", (call,))
        return replace(reply, message=message, truncated_calls=frozenset({call.id}))
    if answer := _ANSWER.search(text):
        return replace(reply, message=Message("assistant", (Text(_unescaped(answer[1])),)))
    return reply


def _unescaped(text: str) -> str:
    """The beginning of a JSON string, as text."""
    whole = re.match(r"(?:[^\\\"]|\\(?:[^u]|u[0-9a-fA-F]{4}))*", text)
    assert whole is not None
    try:
        return str(jsontext.loads(f'"{whole[0]}"'.encode("utf-8", "surrogatepass")))
    except ValueError:
        return whole[0]


def read(content: str) -> Constrained | None:
    """What a reply says; None where it is not of that form (the server did not enforce it, or it was cut off)."""
    try:
        value = jsontext.loads(content.strip().encode("utf-8", "surrogatepass"))
    except ValueError:
        return None
    if not isinstance(value, dict):
        return None
    reply = cast("dict[str, Any]", value)
    thought = str(reply.get("thought", ""))
    if isinstance(name := reply.get("tool"), str) and isinstance(arguments := reply.get("arguments"), dict):
        call = ToolCall(f"call_{new_id()}", name, jsontext.dumps(arguments).decode())
        return Constrained(thought, call=call)
    answer = reply.get("answer")
    return Constrained(thought, answer) if isinstance(answer, str) else None


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _closed(schema: dict[str, Any]) -> dict[str, Any]:
    """Objects with known fields take no others: a grammar for any field lets a weak model wander."""
    if schema.get("type") == "object" and schema.get("properties"):
        inner = {name: _closed(field) for name, field in schema["properties"].items()}
        return {**schema, "properties": inner, "additionalProperties": False}
    if isinstance(items := schema.get("items"), dict):
        return {**schema, "items": _closed(cast("dict[str, Any]", items))}
    return schema
