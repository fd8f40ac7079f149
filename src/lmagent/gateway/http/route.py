"""Route: one row of the table that is the API; `openapi.py` describes it from the same Structs."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from contextlib import aclosing, contextmanager
from functools import partial, partialmethod
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_type_hints

import anyio
import anyio.abc
import msgspec
from anyio import to_thread
from msgspec import Struct
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Message, Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from lmagent.cluster import without_blocking
from lmagent.core.decoding import convert, decode_json
from lmagent.core.errors import LmagentError, ungrouped
from lmagent.core.ids import SESSION_RULE, is_session_id
from lmagent.gateway.http.errors import Refusal, failure_of, status_of

if TYPE_CHECKING:
    from lmagent.gateway.gateway import Gateway
    from lmagent.gateway.http.access import Access, Caller
    from lmagent.gateway.http.guard import Visitor

MAX_BODY = 1_000_000  # bytes of a body, uploads excepted

Method = Literal["GET", "POST", "DELETE"]
# The process that answers a route in a cluster: the gateway, from the database; or a worker, to which the gateway
# forwards it. A route that changes one machine is refused there.
Place = Literal["worker", "gateway", "machine"]

Handler = TypeVar("Handler", bound=Callable[..., Any])


class Call(Struct, frozen=True):
    """A request that is let in; `path` has the parts of its path by name, `key` identifies the caller."""

    gateway: Gateway
    request: Request
    path: dict[str, str]
    caller: Caller
    key: bytes
    access: Access

    def session(self) -> str:
        """Return the id of the session in the path, or raise SessionNotFound if no session has it."""
        self.gateway.runner.require(self.path["session"])
        return self.path["session"]

    async def known_session(self) -> str:
        """Do the same in a coroutine, which does not wait for a database that is away."""
        return await without_blocking(self.gateway.host.settings, self.session)


class Talk(Struct, frozen=True):
    """A WebSocket whose visitor is admitted; it is not accepted yet."""

    gateway: Gateway
    socket: WebSocket
    path: dict[str, str]
    access: Access
    visitor: Visitor


class Socket(Struct, frozen=True):
    """A row of the table of sockets. Its handler accepts the socket and returns when it is closed."""

    path: str
    handler: Callable[[Talk], Awaitable[None]]
    place: Place = "worker"


class Route(Struct, frozen=True):
    """A row of the table."""

    method: Method
    path: str  # with `{name}` for its parts; `{name:path}` takes slashes, `{session}` only a session's id
    # takes the call, and `query` and `body` if the route has them; returns a Struct or a response. A plain function
    # runs in a thread
    handler: Callable[..., Any]
    summary: str  # one line, for the description
    query: type[Struct] | None = None  # Struct of the query; its fields are decoded from text
    body: Any = None  # Struct of the JSON body
    answer: Any = None  # type of a JSON answer, else None
    status: int = 200
    media: str = ""  # content types of an answer that is not JSON, separated by ", "
    raw: bool = False  # the handler reads the body itself, within limits of its own
    is_open: bool = False  # needs no credentials
    limit: int = MAX_BODY  # bytes of the body
    place: Place = "worker"  # the process that answers it in a cluster
    # finds the session that a request without one in its path is for; empty for none
    session_of: Callable[[Call], Awaitable[str]] | None = None
    tell: Callable[[Exception], Response] | None = None  # makes the error response of a route with its own error format


class Routes(list[Route]):
    """The routes of a module; the annotations of a handler are the types of its query, body and answer."""

    def _row(self, method: Method, path: str, summary: str, **options: Any) -> Callable[[Handler], Handler]:
        def add(handler: Handler) -> Handler:
            kinds = get_type_hints(handler)
            answer = kinds.pop("return")
            fields: dict[str, Any] = {name: kinds[name] for name in ("query", "body") if name in kinds}
            fields["answer"] = None if answer is Response else answer
            self.append(Route(method, path, handler, summary, **{**fields, **options}))
            return handler

        return add

    get = partialmethod(_row, "GET")
    post = partialmethod(_row, "POST")
    delete = partialmethod(_row, "DELETE")


def json(value: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")


class ClosingStream(StreamingResponse):
    """A streamed answer; its generator is closed as soon as the client leaves."""

    def __init__(self, pieces: AsyncGenerator[bytes], **options: Any) -> None:
        super().__init__(pieces, **options)
        self._pieces = pieces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self._pieces):
            await super().__call__(scope, receive, send)


def told(error: Exception) -> Response:
    answer = json(failure_of(error), status_of(error))
    if isinstance(error, Refusal):
        answer.headers.update(error.headers)
    return answer


async def carry_out(route: Route, call: Call) -> Response:
    """Answer a request by its route; errors become responses."""
    try:
        given: dict[str, Any] = {}
        check_parts(call.path)
        if route.query is not None:
            given["query"] = _query(route.query, call.request)
        if route.body is not None and not route.raw:
            must_be_json(call.request)
            given["body"] = decode(await call.request.body(), route.body)
        work = partial(route.handler, call, **given)
        answer = await (work() if iscoroutinefunction(route.handler) else to_thread.run_sync(work))
    except ClientDisconnect:
        return (route.tell or told)(Refusal(400, "cut", "the body broke off", fix="send it again"))
    except (LmagentError, msgspec.ValidationError, msgspec.DecodeError) as error:
        return (route.tell or told)(error)
    return answer if isinstance(answer, Response) else json(answer, route.status)


def check_parts(parts: dict[str, str]) -> None:
    """Refuse the parts of a path that have control characters, or are not a session's id where one belongs."""
    for name, value in parts.items():
        if not value.isprintable() and name != "path":
            raise Refusal(400, "invalid", f"the {name} in the path has characters that no {name} has")
        if name == "session" and not is_session_id(value):
            raise Refusal(400, "invalid", f"{value[:80]!r} is no session's id", fix=SESSION_RULE)


def _query(kind: type[Struct], request: Request) -> Struct:
    given, known = dict(request.query_params), kind.__struct_fields__
    if len(given) < len(request.query_params.multi_items()) or not given.keys() <= set(known):
        raise Refusal(400, "invalid", f"the query has other names than {', '.join(known)}, or a name twice")
    return convert(given, kind, strict=False)


# --- bodies -----------------------------------------------------------------------------------------------------------


class Patience(Struct, frozen=True):
    """Seconds between two pieces of a body and for the whole, plus the time of its size at `rate` bytes a second."""

    silence: float = 20.0
    whole: float = 60.0
    rate: int = 100_000


PATIENCE = Patience()


def limited(limit: int, length: str, receive: Receive, patience: Patience) -> Receive:
    """Return a `receive` that refuses a body of more than `limit` bytes (413), or one that is too slow (408)."""
    too_large = Refusal(413, "too_large", f"the body is larger than {limit:,} bytes", fix="send less")
    taken = 0
    ended = False
    ends: float | None = None

    async def receiver() -> Message:
        nonlocal taken, ended, ends
        if ended:  # the next message can only be that the client has gone
            return await receive()
        if length.isdecimal() and int(length) > limit:
            raise too_large
        now = anyio.current_time()
        ends = now + patience.whole + limit / patience.rate if ends is None else ends
        try:
            with anyio.fail_after(min(patience.silence, ends - now)):
                message = await receive()
        except TimeoutError:
            raise Refusal(408, "too_slow", "the body did not come in time", fix="send it again") from None
        if message["type"] == "http.request":
            taken += len(message.get("body", b""))
            ended = not message.get("more_body")
        if taken > limit:
            raise too_large
        return message

    return receiver


def must_be_json(request: Request) -> None:
    """Refuse a body whose Content-Type is not JSON (415)."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind and kind != "application/json" and not kind.endswith("+json"):
        fix = "send Content-Type: application/json"
        raise Refusal(415, "not_json", f"the body is {kind[:80]!r}, not JSON", fix=fix)


def decode(text: bytes, kind: Any) -> Any:
    """Decode a JSON body."""
    try:
        return decode_json(text, kind)
    except RecursionError:
        raise Refusal(400, "too_deep", "the JSON is nested too deep") from None
    except UnicodeDecodeError as error:
        raise Refusal(400, "invalid", f"the body is not UTF-8: {error.reason}") from None


# --- sockets ----------------------------------------------------------------------------------------------------------


async def read_message(socket: WebSocket) -> bytes:
    """Return the next message of an accepted socket, text or bytes, or raise WebSocketDisconnect."""
    message = await socket.receive()
    if message["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(message.get("code", 1000))
    text = message.get("text")
    return text.encode("utf-8", "replace") if text is not None else (message.get("bytes") or b"")


async def hold(
    socket: WebSocket, end: tuple[int, str], *works: Callable[[anyio.abc.TaskGroup], Coroutine[Any, Any, None]]
) -> None:
    """Work with an accepted socket until the client goes, or until a work cancels the group; then close the socket."""
    with _until_gone():
        with ungrouped():
            async with anyio.create_task_group() as tasks:
                for work in works:
                    tasks.start_soon(work, tasks)
        await socket.close(*end)


@contextmanager
def _until_gone() -> Generator[None]:
    """End the work on a socket quietly when the client goes."""
    try:
        yield
    except (WebSocketDisconnect, anyio.BrokenResourceError):
        return
    except RuntimeError as closed:  # raised by Starlette for a send after the end
        if "close" not in str(closed):
            raise
