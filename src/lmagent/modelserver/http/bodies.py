"""Bodies: the body of a request, read with a limit and checked before any model is loaded for it."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Annotated, Any, cast

import anyio
import msgspec
from msgspec import Meta, Struct

from lmagent.core.decoding import convert
from lmagent.modelserver.errors import BadRequest
from lmagent.providers import jsontext

MAX_BODY = 64 * 1024 * 1024  # bytes of a request
SLOWEST = 60.0  # seconds in which a client has to send some of its body

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Scope = MutableMapping[str, Any]


class _Fields(Struct, kw_only=True):
    """The fields that are checked on each route; others are the engine's affair."""

    model: str | None = None
    stream: bool | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    max_output_tokens: int | None = None
    seed: int | None = None
    n: int | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    response_format: dict[str, Any] | None = None
    stream_options: dict[str, Any] | None = None
    stop: str | list[Any] | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None


class _ChatMessage(Struct):
    role: str
    content: str | list[Any] | None = None
    tool_calls: list[Any] | None = None


class _Function(Struct):
    name: Annotated[str, Meta(min_length=1)]
    parameters: dict[str, Any] | None = None


class _Tool(Struct):
    function: _Function


class _Messages(_Fields, kw_only=True):
    messages: Annotated[list[_ChatMessage], Meta(min_length=1)]
    tools: list[dict[str, Any]] | None = None


class _Chat(_Fields, kw_only=True):
    messages: Annotated[list[_ChatMessage], Meta(min_length=1)]
    tools: list[_Tool] | None = None


class _Prompt(_Fields, kw_only=True):
    prompt: str | list[Any]


class _Input(_Fields, kw_only=True):
    input: str | list[Any]


class _Rerank(_Fields, kw_only=True):
    query: str
    documents: list[Any]


class _Tokenize(_Fields, kw_only=True):
    content: str


_OF_ROUTE: dict[str, type[_Fields]] = {
    "chat": _Chat,
    "messages": _Messages,
    "completions": _Prompt,
    "responses": _Input,
    "embeddings": _Input,
    "rerank": _Rerank,
    "tokenize": _Tokenize,
}


class RelayRequest(Struct):
    route: str  # "chat", "completions", "embeddings", "responses", "messages", "rerank", "tokenize", …
    path: str  # the path, for the engine
    body: dict[str, Any]  # its fields
    model: str = ""  # the model's name as the client wrote it; empty if it named none
    stream: bool = False  # it wants events


async def read_body(scope: Scope, receive: Receive, limit: int = MAX_BODY) -> bytes:
    """Read the whole body; refuse one that is too large (413) or comes too slowly (408)."""
    announced = dict(cast("list[tuple[bytes, bytes]]", scope["headers"])).get(b"content-length", b"")
    size, body = int(announced) if announced.isdigit() else 0, bytearray()
    while max(size, len(body)) <= limit:
        try:
            with anyio.fail_after(SLOWEST):
                message = await receive()
        except TimeoutError:
            raise BadRequest(f"no more of the body for {SLOWEST:.0f} s", status=408, code="timeout") from None
        if message["type"] == "http.disconnect":
            raise BadRequest("the client went away", status=400, code="client_closed")
        body += message.get("body", b"")
        if len(body) <= limit and not message.get("more_body"):
            return bytes(body)
    text = f"the request is larger than {limit // 1024 // 1024} MB"
    raise BadRequest(text, status=413, code="request_too_large")


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
    try:
        checked = convert(body, _OF_ROUTE.get(route, _Fields))
    except msgspec.ValidationError as error:
        text, _, place = str(error).partition(" - at `$")
        field = place.rstrip("`").lstrip(".")
        if missing := re.search(r"missing required field `(\w+)`", text):
            field = f"{field}.{missing[1]}".lstrip(".")
            raise BadRequest(f"'{field}' is missing", param=field, code="missing_field") from None
        raise BadRequest(f"'{field}' is wrong: {text}", param=field, code="invalid_type") from None
    return RelayRequest(route, path, body, (checked.model or "").strip(), checked.stream is True)
