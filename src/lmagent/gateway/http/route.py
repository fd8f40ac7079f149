"""Route: one row of the table that is the API.

The table decodes requests, encodes answers and reports errors; `openapi.py` describes it from the same Structs. A
handler that streams, or whose answer is not JSON, returns a Starlette response.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Struct
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.websockets import WebSocket

from lmagent.core.decoding import convert, decode_json
from lmagent.core.errors import LmagentError
from lmagent.core.ids import SESSION_RULE, is_session_id
from lmagent.gateway.http.access import Access, Caller
from lmagent.gateway.http.errors import Refusal, failure_of, status_of

if TYPE_CHECKING:
    from lmagent.gateway.gateway import Gateway

MAX_BODY = 1_000_000
"""Bytes of a body, uploads excepted."""

MAX_DEPTH = 64
"""Levels of nesting in a JSON body."""

_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_NO_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")
_STEPS = bytes.maketrans(b"[{]}", b"\2\2\0\0")

Method = Literal["GET", "POST", "DELETE"]


class Call(Struct, frozen=True):
    """A decoded request.

    Attributes:
        path: parts of the path, by name.
        query: the route's `query` Struct, None if it has none.
        body: the route's `body` Struct, None if it has none.
    """

    gateway: Gateway
    request: Request
    path: dict[str, str]
    query: Any
    body: Any
    caller: Caller
    access: Access


Handler = Callable[[Call], Awaitable[Any]]


class Talk(Struct, frozen=True):
    """A WebSocket whose caller is admitted; it is not accepted yet."""

    gateway: Gateway
    socket: WebSocket
    path: dict[str, str]
    caller: Caller
    access: Access


class Socket(Struct, frozen=True):
    """A row of the table of sockets. Its handler accepts the socket and returns when it is closed."""

    path: str
    handler: Callable[[Talk], Awaitable[None]]


class Route(Struct, frozen=True):
    """A row of the table.

    Attributes:
        path: with `{name}` for its parts; `{name:path}` takes slashes, `{session}` only a session's id.
        handler: returns a Struct (sent as JSON), or a response.
        summary: one line, for the description.
        query: Struct of the query; its fields are decoded from text.
        body: Struct of the JSON body.
        answer: type of a JSON answer, else None.
        status: of a success.
        media: content types of an answer that is not JSON, separated by ", ".
        errors: statuses that a well-formed request may meet beyond 400, 401, 403 and 413.
        raw: the handler reads the body itself, within limits of its own.
        is_open: needs no credentials.
        limit: bytes of the body.
        tell: makes the error response of a route with its own error format.
    """

    method: Method
    path: str
    handler: Handler
    summary: str
    query: type[Struct] | None = None
    body: Any = None
    answer: Any = None
    status: int = 200
    media: str = ""
    errors: Sequence[int] = ()
    raw: bool = False
    is_open: bool = False
    limit: int = MAX_BODY
    tell: Callable[[Exception], Response] | None = None


def json(value: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def told(error: Exception) -> Response:
    answer = json(failure_of(error), status_of(error))
    if isinstance(error, Refusal):
        answer.headers.update(error.headers)
    return answer


async def carry_out(route: Route, gateway: Gateway, request: Request, caller: Caller, access: Access) -> Response:
    """Answer a request by its route; errors become responses."""
    try:
        path = path_of(request.path_params)
        query, body = _query(route, request), await _body(route, request)
        answer = await route.handler(Call(gateway, request, path, query, body, caller, access))
    except ClientDisconnect:
        return (route.tell or told)(Refusal(400, "cut", "the body broke off", fix="send it again"))
    except (LmagentError, msgspec.ValidationError, msgspec.DecodeError) as error:
        return (route.tell or told)(error)
    return answer if isinstance(answer, Response) else json(answer, route.status)


def path_of(parts: dict[str, Any]) -> dict[str, str]:
    """Return the parts of a path, checked.

    Raises:
        Refusal: a part has control characters, or is not a session's id.
    """
    for name, value in parts.items():
        if not value.isprintable() and name != "path":
            raise Refusal(400, "invalid", f"the {name} in the path has characters that no {name} has")
        if name == "session" and not is_session_id(value):
            raise Refusal(400, "invalid", f"{value[:80]!r} is no session's id", fix=SESSION_RULE)
    return dict(parts)


def _query(route: Route, request: Request) -> Any:
    if route.query is None:
        return None
    given: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name in given:
            raise Refusal(400, "invalid", f"the query gives {name[:80]!r} twice")
        given[name] = value
    known = {field.encode_name for field in msgspec.structs.fields(route.query)}
    if unknown := sorted(given.keys() - known):
        raise Refusal(
            400, "invalid", f"the query has no {unknown[0][:80]!r}", fix=f"it knows {', '.join(sorted(known))}"
        )
    return convert(given, route.query, strict=False)


async def _body(route: Route, request: Request) -> Any:
    if route.body is None or route.raw:
        return None
    must_be_json(request)
    return decode(await request.body(), route.body)


def must_be_json(request: Request) -> None:
    """Refuse a body whose Content-Type is not JSON.

    Raises:
        Refusal: 415.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind and kind != "application/json" and not kind.endswith("+json"):
        raise Refusal(
            415, "not_json", f"the body is {kind[:80]!r}, not JSON", fix="send Content-Type: application/json"
        )


def decode(text: bytes, kind: Any) -> Any:
    """Decode a JSON body.

    Raises:
        Refusal: the JSON is nested too deep.
        msgspec.ValidationError: the JSON does not fit the Struct.
        msgspec.DecodeError: the body is not JSON.
    """
    if text.count(b"[") + text.count(b"{") > MAX_DEPTH and _depth(text) > MAX_DEPTH:
        raise Refusal(400, "too_deep", f"the JSON is nested deeper than {MAX_DEPTH} levels")
    try:
        return decode_json(text, kind)
    except UnicodeDecodeError as error:
        raise Refusal(400, "invalid", f"the body is not UTF-8: {error.reason}") from None


def _depth(text: bytes) -> int:
    """Return the greatest depth of brackets outside of strings.

    A few sweeps over all bytes; a loop over the bytes of a large body would take seconds.
    """
    steps = _STRING.sub(b"", text).translate(_STEPS, _NO_BRACKETS)
    return max(accumulate(map((-1).__add__, steps)), default=0)
