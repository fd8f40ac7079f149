"""Strict: requests that the pickiest chat templates and servers refuse.

Each rule is a 400 somewhere: templates that raise on roles out of turn (Mistral, Gemma, Llama 3), servers that check
calls against results (OpenAI, vLLM), and servers that know every request field by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

import msgspec

from lmagent.testing.loopback import json_object

FIELDS = frozenset(
    (
        *("model", "messages", "tools", "tool_choice", "stream", "stream_options", "temperature", "top_p"),
        *("max_tokens", "max_completion_tokens", "response_format", "stop", "seed"),
    )
)
"""Request fields that every server knows."""

_MESSAGE_FIELDS = {
    "system": {"role", "content"},
    "user": {"role", "content"},
    "assistant": {"role", "content", "tool_calls", "reasoning_content"},
    "tool": {"role", "content", "tool_call_id"},
}


def violations(body: Any) -> list[str]:
    """List the objections of a strict server to a chat request; empty if it has none."""
    request = json_object(body)
    found = [f"unknown request field {name!r}" for name in request if name not in FIELDS]
    items = [json_object(item) for item in _list(request.get("messages"))]
    if not all(items):
        return [*found, "messages is not a list of objects"]
    if not items:
        return [*found, "there are no messages"]
    for place, message in enumerate(items):
        found += [f"message {place} ({message.get('role')}): {what}" for what in _message(message)]
    return [*found, *_order(items), *_pairs(items), *_tools(request.get("tools"))]


def _message(message: Mapping[str, Any]) -> Iterator[str]:
    role = message.get("role")
    if role not in _MESSAGE_FIELDS:
        yield "unknown role"
        return
    for name in message.keys() - _MESSAGE_FIELDS[role]:
        yield f"unknown field {name!r}"
    content, calls = message.get("content"), message.get("tool_calls")
    if calls and content == "":
        yield "empty content beside tool calls; leave it out or send null"
    if calls is not None and not calls:
        yield "an empty list of tool calls"
    if not calls and content in (None, "", []) and role != "tool":
        yield "no content"
    if role == "tool" and not isinstance(content, str):
        yield "a tool result that is not text"
    for call in _list(calls):
        yield from _call(json_object(call))


def _call(call: Mapping[str, Any]) -> Iterator[str]:
    function = json_object(call.get("function"))
    if not call.get("id") or call.get("type") != "function" or not function.get("name"):
        yield "a tool call needs id, type function and a name"
    arguments = function.get("arguments")
    try:
        decoded: object = msgspec.json.decode(arguments) if isinstance(arguments, str) else None
    except msgspec.DecodeError:
        decoded = None
    if not isinstance(decoded, dict):
        yield f"arguments of {function.get('name')!r} are not the text of a JSON object"


def _order(messages: list[dict[str, Any]]) -> Iterator[str]:
    previous = ""
    for place, message in enumerate(messages):
        role = message.get("role", "")
        if role == "system" and place:
            yield f"message {place}: a system message that is not the first"
        if role == previous and role in ("user", "assistant"):
            yield f"message {place}: two {role} messages in a row"
        if role == "assistant" and previous in ("", "system"):
            yield f"message {place}: an assistant message before any user message"
        previous = role
    if previous == "assistant":
        yield "the last message is the assistant's"


def _pairs(messages: list[dict[str, Any]]) -> Iterator[str]:
    """Require one tool message per call, directly after the calls, and no others."""
    open_calls: dict[str, int] = {}
    known: set[str] = set()
    for place, message in enumerate(messages):
        if message.get("role") == "tool":
            wanted = message.get("tool_call_id")
            if wanted not in open_calls:
                yield f"message {place}: a tool result without a call ({wanted!r})"
            open_calls.pop(str(wanted), None)
            continue
        for missing, at in open_calls.items():
            yield f"message {at}: the call {missing!r} has no result"
        open_calls = {}
        for call in _list(message.get("tool_calls")):
            name = str(json_object(call).get("id"))
            if name in known:
                yield f"message {place}: the call id {name!r} was used before"
            known.add(name)
            open_calls[name] = place
    for missing, at in open_calls.items():
        yield f"message {at}: the call {missing!r} has no result"


def _tools(tools: Any) -> Iterator[str]:
    if tools is None:
        return
    if not _list(tools):
        yield "tools is not a list with at least one tool; leave it out"
    for tool in _list(tools):
        function = json_object(json_object(tool).get("function"))
        if json_object(function.get("parameters")).get("type") != "object":
            yield f"the parameters of {function.get('name')!r} are not a JSON schema of type object"


def _list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []
