"""Constrained calls: a schema that lets a model write only a valid call of one of the tools, or an answer.

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
from lmagent.core.messages import Message, Text, Thinking, ToolCall
from lmagent.core.model import ModelReply, ToolSpec
from lmagent.providers import jsontext

_TEXT: dict[str, Any] = {"type": "string"}
_HALF_ESCAPE = re.compile(r"(?<!\\)((?:\\\\)*)\\(?:u[0-9a-fA-F]{0,3})?\Z")
"""Half an escape at the end of a text that the token limit cut off."""


class Constrained(Struct, frozen=True):
    thought: str = ""
    text: str = ""
    call: ToolCall | None = None


def schema_for(tools: Sequence[ToolSpec], *, think: bool) -> dict[str, Any]:
    """Return the schema of a reply; with `think`, it begins with a thought."""
    first: dict[str, Any] = {"thought": _TEXT} if think else {}
    calls = [_object({**first, "tool": {"const": tool.name}, "arguments": _closed(tool.parameters)}) for tool in tools]
    return {"anyOf": [*calls, _object({**first, "answer": _TEXT})]}


def thinks(messages: Sequence[Message]) -> bool:
    return any(isinstance(part, Thinking) for message in messages for part in message.parts)


def understood(reply: ModelReply, tools: Sequence[ToolSpec] = ()) -> ModelReply:
    """Return a constrained reply in the usual form: with calls, or with text.

    A reply of another form comes from a server that did not enforce the schema. Its model knows the form and may have
    added text, a fence or another object, or may have called as it was trained to: all of that is read.
    """
    message = reply.message
    if message.tool_calls or not message.text.strip():
        return reply
    cut = reply.finish_reason == "length"
    said = _said(_HALF_ESCAPE.sub(r"\1", message.text) + '"}' if cut else message.text, tools)
    if said is None or (cut and any(one.call is not None for one in said)):
        return _freely(reply, tools, cut=cut)
    text = "\n\n".join(one.text for one in said if one.text)
    calls = [one.call for one in said if one.call is not None]
    finish = "tool_calls" if calls else reply.finish_reason
    return replace(reply, message=_message(reply, [one.thought for one in said], text, calls), finish_reason=finish)


def _message(reply: ModelReply, thoughts: Sequence[str], text: str, calls: Sequence[ToolCall]) -> Message:
    known = [part for part in reply.message.parts if isinstance(part, Thinking)]
    added = [Thinking(thought) for thought in thoughts if thought.strip()]
    return Message("assistant", (*known, *added, *([Text(text)] if text.strip() else []), *calls))


def _freely(reply: ModelReply, tools: Sequence[ToolSpec], *, cut: bool) -> ModelReply:
    """Return a reply of another form with the calls in its text, else with its whole text."""
    from lmagent.providers.textcalls import find_calls  # not needed where the schema is enforced

    found = find_calls(reply.message.text, tools, cut=cut)
    if not found.calls:
        return reply
    return replace(
        reply,
        message=_message(reply, [found.thinking], found.content, [call.tool_call() for call in found.calls]),
        truncated_calls=frozenset(call.id for call in found.calls if call.truncated),
        text_format=found.calls[0].format,
        finish_reason=reply.finish_reason if cut else "tool_calls",
    )


def _said(text: str, tools: Sequence[ToolSpec]) -> list[Constrained] | None:
    """Return the parts of a reply: one object, or several in a row; None for another form."""
    import json

    decoder = json.JSONDecoder(strict=False)
    said: list[Constrained] = []
    text = text.strip()
    while text:
        try:
            value, end = decoder.raw_decode(text)
        except (ValueError, RecursionError):
            return None
        if (one := _read(value, tools)) is None:
            return None
        said.append(one)
        text = text[end:].lstrip()
    return said


def _read(value: Any, tools: Sequence[ToolSpec]) -> Constrained | None:
    if not isinstance(value, dict):
        return None
    reply = cast("dict[str, Any]", value)
    thought = reply.get("thought")
    thought = jsontext.mend(thought) if isinstance(thought, str) else ""
    name, arguments = reply.get("tool"), reply.get("arguments")
    alone = arguments is None and reply.keys() <= {"thought", "tool", "arguments"}
    if alone and any(tool.name == name for tool in tools):
        arguments = {}  # if the tool needs arguments, the model gets an error
    if isinstance(name, str) and isinstance(arguments, dict):
        call = ToolCall(f"call_{new_id()}", jsontext.mend(name), jsontext.dumps(arguments).decode())
        return Constrained(thought, call=call)
    answer = reply.get("answer")
    return Constrained(thought, jsontext.mend(answer)) if isinstance(answer, str) else None


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _closed(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema, with objects closed to unknown fields: a grammar for any field lets a weak model wander."""
    if schema.get("type") == "object" and schema.get("properties"):
        inner = {name: _closed(field) for name, field in schema["properties"].items()}
        return {**schema, "properties": inner, "additionalProperties": False}
    if isinstance(items := schema.get("items"), dict):
        return {**schema, "items": _closed(cast("dict[str, Any]", items))}
    return schema
