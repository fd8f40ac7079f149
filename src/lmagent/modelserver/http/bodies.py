"""Bodies: the body of a request, read with a limit and checked before any model is loaded for it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, cast

import anyio
from msgspec import Struct

from lmagent.modelserver.errors import BadRequest
from lmagent.providers import jsontext

MAX_BODY = 64 * 1024 * 1024
"""Bytes of a request."""

SLOWEST = 60.0
"""Seconds in which a client has to send some of its body."""

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Scope = MutableMapping[str, Any]

_KINDS: dict[str, tuple[type, ...]] = {
    "a text": (str,),
    "a boolean": (bool,),
    "an integer": (int,),
    "a number": (int, float),
    "a list": (list,),
    "an object": (dict,),
    "a text or an object": (str, dict),
    "a text or a list": (str, list),
}
_ANYWHERE = {
    "model": "a text",
    "stream": "a boolean",
    "temperature": "a number",
    "top_p": "a number",
    "max_tokens": "an integer",
    "max_completion_tokens": "an integer",
    "max_output_tokens": "an integer",
    "seed": "an integer",
    "n": "an integer",
    "tools": "a list",
    "tool_choice": "a text or an object",
    "parallel_tool_calls": "a boolean",
    "response_format": "an object",
    "stream_options": "an object",
    "stop": "a text or a list",
    "frequency_penalty": "a number",
    "presence_penalty": "a number",
}
_OF_ROUTE = {
    "chat": {"messages": "a list"},
    "messages": {"messages": "a list"},
    "completions": {"prompt": "a text or a list"},
    "responses": {"input": "a text or a list"},
    "embeddings": {"input": "a text or a list"},
    "rerank": {"query": "a text", "documents": "a list"},
    "tokenize": {"content": "a text"},
}
"""The required fields of a route."""


class RelayRequest(Struct):
    route: str  # "chat", "completions", "embeddings", "responses", "messages", "rerank", "tokenize", …
    path: str  # the path, for the engine
    body: dict[str, Any]  # its fields
    model: str = ""  # the model's name as the client wrote it; empty if it named none
    stream: bool = False  # it wants events


async def read_body(scope: Scope, receive: Receive, limit: int = MAX_BODY) -> bytes:
    """Read the whole body; refuse one that is too large (413) or comes too slowly (408)."""
    too_large = BadRequest(
        f"the request is larger than {limit // 1024 // 1024} MB", status=413, code="request_too_large"
    )
    told = dict(cast("list[tuple[bytes, bytes]]", scope["headers"])).get(b"content-length", b"")
    if told.isdigit() and int(told) > limit:
        raise too_large
    body = bytearray()
    while True:
        try:
            with anyio.fail_after(SLOWEST):
                message = await receive()
        except TimeoutError:
            raise BadRequest(f"no more of the body for {SLOWEST:.0f} s", status=408, code="timeout") from None
        if message["type"] == "http.disconnect":
            raise BadRequest("the client went away", status=400, code="client_closed")
        body += message.get("body", b"")
        if len(body) > limit:
            raise too_large
        if not message.get("more_body"):
            return bytes(body)


def fields_of(raw: bytes) -> dict[str, Any]:
    try:
        value = jsontext.loads(raw)
    except ValueError as error:
        raise BadRequest(f"the body is not valid JSON: {error}", code="invalid_json") from None
    if not isinstance(value, dict):
        raise BadRequest("the body has to be a JSON object", code="invalid_json")
    return cast("dict[str, Any]", value)


def understood(route: str, path: str, raw: bytes) -> RelayRequest:
    """Check the fields of a body; an error names the field."""
    body = fields_of(raw)
    for field, kind in _ANYWHERE.items():
        if body.get(field) is not None:
            _must_be(body[field], field, kind)
    for field, kind in _OF_ROUTE.get(route, {}).items():
        if body.get(field) is None:
            raise BadRequest(f"'{field}' is missing; it has to be {kind}", param=field, code="missing_field")
        _must_be(body[field], field, kind)
    if route in ("chat", "messages"):
        _look_at_messages(body["messages"])
    if isinstance(body.get("tools"), list):
        _look_at_tools(route, body["tools"])
    return RelayRequest(route, path, body, str(body.get("model") or "").strip(), body.get("stream") is True)


def _must_be(value: Any, field: str, kind: str) -> None:
    kinds = _KINDS[kind]
    if isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool)):
        return
    raise BadRequest(f"'{field}' has to be {kind}, not {_said(value)}", param=field, code="invalid_type")


def _look_at_messages(messages: list[Any]) -> None:
    if not messages:
        raise BadRequest("'messages' is empty: at least one message is needed", param="messages")
    for number, message in enumerate(messages):
        at = f"messages[{number}]"
        _must_be(message, at, "an object")
        _must_be(message.get("role"), f"{at}.role", "a text")
        if message.get("content") is not None:
            _must_be(message["content"], f"{at}.content", "a text or a list")
        if message.get("tool_calls") is not None:
            _must_be(message["tool_calls"], f"{at}.tool_calls", "a list")


def _look_at_tools(route: str, tools: list[Any]) -> None:
    for number, tool in enumerate(tools):
        at = f"tools[{number}]"
        _must_be(tool, at, "an object")
        if route != "chat":
            continue
        _must_be(tool.get("function"), f"{at}.function", "an object")
        function = tool["function"]
        _must_be(function.get("name"), f"{at}.function.name", "a text")
        if not function["name"]:
            raise BadRequest(f"'{at}.function.name' is empty", param=f"{at}.function.name")
        if function.get("parameters") is not None:
            _must_be(function["parameters"], f"{at}.function.parameters", "an object")


def _said(value: Any) -> str:
    """Name the kind of value that came instead."""
    names = {bool: "a boolean", int: "a number", float: "a number", str: "a text", list: "a list", dict: "an object"}
    return names.get(cast("type[Any]", type(value)), "null")
