"""Events as server-sent events. A client resumes a broken stream with its last `id`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Annotated

import anyio
from msgspec import Meta, Struct
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from lmagent.gateway.gateway import Gateway
from lmagent.gateway.http.errors import Refusal
from lmagent.gateway.http.route import Call, Route

BEAT = 15.0
"""Seconds of silence after which a comment is sent, so that proxies keep the connection open."""

RETRY = b"retry: 1000\n\n"
"""Milliseconds after which a browser reconnects."""

HIGHEST = 2**53 - 1
"""The largest integer that all JSON readers read exactly."""


class SessionEventsQuery(Struct, frozen=True):
    """`seq` of the last event that the client has."""

    after: Annotated[int, Meta(ge=0, le=HIGHEST)] = 0


class AllEventsQuery(Struct, frozen=True):
    """The last `id` that the client received: "0" for all recorded events, empty for new ones only."""

    after: Annotated[str, Meta(max_length=64)] = ""


Take = Callable[[], Awaitable[bytes]]
"""Waits for the next bytes of a stream; empty at its end."""


class EventStream(Response):
    """A response that lasts until the client leaves or the stream ends."""

    media_type = "text/event-stream"

    def __init__(self, opened: Callable[[], AbstractAsyncContextManager[Take]]) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        self._opened = opened

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(name, value) for name, value in self.raw_headers if name != b"content-length"]
        async with self._opened() as take, anyio.create_task_group() as tasks:
            tasks.start_soon(_until_gone, receive, tasks.cancel_scope)
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": RETRY, "more_body": True})
            while True:
                data = b": \n\n"
                with anyio.move_on_after(BEAT):
                    data = await take()
                if not data:
                    break
                await send({"type": "http.response.body", "body": data, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            tasks.cancel_scope.cancel()


async def _until_gone(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


async def stream_session(call: Call) -> Response:
    """Stream a session's events, after an event or from its beginning."""
    gateway, session = call.gateway, call.path["session"]
    query: SessionEventsQuery = call.query
    last = call.request.headers.get("last-event-id", "")
    if last and not (last.isascii() and last.isdigit() and int(last[:16]) <= HIGHEST):
        raise Refusal(400, "invalid", f"Last-Event-ID is {last[:40]!r}, no number", fix="leave it out")
    after = int(last) if last else query.after
    await check_place(gateway, session, after)
    return EventStream(partial(_session_stream, call, session, after))


async def check_place(gateway: Gateway, session: str, after: int) -> None:
    """Check that the session can be watched from `after` on.

    Raises:
        SessionNotFound: no session has this id.
        Refusal: it has fewer events.
    """
    gateway.runner.require(session)
    if after > (there := await gateway.last_seq(session)):
        fix = f"resume after {there}"
        raise Refusal(400, "beyond", f"session {session} has no event {after}: its last is {there}", fix=fix)


async def stream_all(call: Call) -> Response:
    """Stream the recorded events of all sessions, after a cursor or from now on."""
    query: AllEventsQuery = call.query
    after = call.request.headers.get("last-event-id", "") or query.after
    await call.gateway.broadcast.feed.check(after)
    return EventStream(partial(_all_stream, call, after))


@asynccontextmanager
async def _session_stream(call: Call, session: str, after: int) -> AsyncGenerator[Take]:
    async with call.gateway.broadcast.watch(session, after) as watching:

        async def take() -> bytes:
            return b"".join(
                b"id: %d\ndata: %b\n\n" % (frame.seq, frame.data) if frame.seq else b"data: %b\n\n" % frame.data
                for frame in await watching.take()
            )

        yield take


@asynccontextmanager
async def _all_stream(call: Call, after: str) -> AsyncGenerator[Take]:
    async with call.gateway.broadcast.watch_all(after) as following:

        async def take() -> bytes:
            found = await following.take()
            return b"".join(b"id: %b\ndata: %b\n\n" % (one.cursor.encode(), one.data) for one in found)

        yield take


ROUTES = (
    Route(
        "GET",
        "/api/sessions/{session}/events",
        stream_session,
        "What happens in a session: recorded events with their seq as id, live ones without",
        query=SessionEventsQuery,
        media="text/event-stream",
        errors=(404,),
    ),
    Route(
        "GET",
        "/api/events",
        stream_all,
        "Recorded events of all sessions, each with a cursor as id",
        query=AllEventsQuery,
        media="text/event-stream",
    ),
)
