"""Events as server-sent events, and of many sessions over one WebSocket. A client resumes a stream where it broke off.

Browsers keep six HTTP/1.1 connections to one address, and each stream of server-sent events occupies one.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Annotated, Any

import anyio
import anyio.abc
import msgspec
from msgspec import Meta, Struct
from starlette.responses import Response

from lmagent.cluster import without_blocking
from lmagent.core.decoding import convert
from lmagent.core.errors import LmagentError
from lmagent.gateway.broadcast.stream import Frame, Watcher
from lmagent.gateway.gateway import Gateway
from lmagent.gateway.http.errors import Refusal, failure_of, status_of
from lmagent.gateway.http.guard import credentials
from lmagent.gateway.http.route import Call, ClosingStream, Routes, Socket, Talk, decode, hold, read_message

ROUTES = Routes()

BEAT = 15.0  # seconds of silence after which a comment is sent, so that proxies keep the connection open
RETRY = b"retry: 1000\n\n"  # milliseconds after which a browser reconnects
HIGHEST = 2**53 - 1  # the largest integer that all JSON readers read exactly


class SessionEventsQuery(Struct, frozen=True):
    """`seq` of the last event that the client has."""

    after: Annotated[int, Meta(ge=0, le=HIGHEST)] = 0


class AllEventsQuery(Struct, frozen=True):
    """The last `id` that the client received: "0" for all recorded events, empty for new ones only."""

    after: Annotated[str, Meta(max_length=64)] = ""


@ROUTES.get(
    "/api/sessions/{session}/events",
    "What happens in a session: recorded events with their seq as id, live ones without",
    media="text/event-stream",
    place="gateway",
)
async def stream_session(call: Call, query: SessionEventsQuery) -> Response:
    """Stream a session's events, after an event or from its beginning."""
    gateway, session = call.gateway, call.path["session"]
    if last := call.request.headers.get("last-event-id"):
        query = convert({"after": last}, SessionEventsQuery, strict=False)
    await check_place(gateway, session, query.after)
    return _stream(gateway.broadcast.watch(session, query.after))


async def check_place(gateway: Gateway, session: str, after: int) -> None:
    """Check that the session can be watched from `after` on."""
    await without_blocking(gateway.host.settings, lambda: gateway.runner.require(session))
    if after > (there := await gateway.last_seq(session)):
        fix = f"resume after {there}"
        raise Refusal(400, "beyond", f"session {session} has no event {after}: its last is {there}", fix=fix)


@ROUTES.get(
    "/api/events",
    "Recorded events of all sessions, each with a cursor as id",
    media="text/event-stream",
    place="gateway",
)
async def stream_all(call: Call, query: AllEventsQuery) -> Response:
    """Stream the recorded events of all sessions, after a cursor or from now on."""
    after = call.request.headers.get("last-event-id", "") or query.after
    await call.gateway.broadcast.feed.check(after)
    return _stream(call.gateway.broadcast.watch_all(after))


def _stream(watched: AbstractAsyncContextManager[Watcher]) -> Response:
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return ClosingStream(_pieces(watched), media_type="text/event-stream", headers=headers)


async def _pieces(watched: AbstractAsyncContextManager[Watcher]) -> AsyncGenerator[bytes]:
    async with watched as watching:
        # The cursor without an event: a client that gets none before the stream breaks off can resume all the same.
        yield RETRY + (b"id: %b\n\n" % watching.cursor.encode() if watching.cursor else b"")
        while True:
            frames = await watching.take(BEAT)
            if frames == []:
                return
            yield b"".join(map(_event, frames)) if frames else b": \n\n"


def _event(frame: Frame) -> bytes:
    place = frame.cursor or frame.seq
    return b"id: %b\ndata: %b\n\n" % (str(place).encode(), frame.data) if place else b"data: %b\n\n" % frame.data


# --- `/api/socket` ----------------------------------------------------------------------------------------------------

MOST = 64  # streams per socket; the queue of a slow client is bounded for each of them
PIECE = 256_000  # bytes of events per message, so that a long history does not hold up the other streams
LOOK = 1.0  # seconds between two checks of the client's login
LOGGED_OUT = 4401  # close code for a login that has ended (RFC 6455, 7.4.2: 4000 to 4999 are for applications)
Name = Annotated[str, Meta(min_length=1, max_length=64)]  # The client's name for a stream


class _Said(Struct, frozen=True, tag_field="type", forbid_unknown_fields=True):
    """A message from a client."""


class Watch(_Said, frozen=True, tag="watch"):
    """Watch a session: the recorded events after `after`, then live ones."""

    id: Name
    session: str
    after: Annotated[int, Meta(ge=0, le=HIGHEST)] = 0


class WatchAll(_Said, frozen=True, tag="watch_all"):
    """Watch the recorded events of all sessions: after a cursor, "0" for the beginning, or from now on."""

    id: Name
    after: Annotated[str, Meta(max_length=64)] = ""


class Unwatch(_Said, frozen=True, tag="unwatch"):
    """Stop watching a stream."""

    id: Name


class Ping(_Said, frozen=True, tag="ping"): ...


Said = Watch | WatchAll | Unwatch | Ping


async def tell(talk: Talk) -> None:
    """Send a client its streams until it leaves, its login ends, or the gateway stops."""
    await talk.socket.accept()
    line = _Line(talk)
    await hold(talk.socket, (LOGGED_OUT, "the login has ended"), line.stay, line.listen)


class _Line:
    """One accepted socket, and its streams."""

    def __init__(self, talk: Talk) -> None:
        self._gateway = talk.gateway
        self._socket = talk.socket
        self._access = talk.access
        self._headers = talk.visitor.headers
        self._watched: dict[str, anyio.CancelScope] = {}

    async def stay(self, tasks: anyio.abc.TaskGroup) -> None:
        """Send a heartbeat, and cancel the group when the client's login ends."""
        told = time.monotonic()
        while self._is_known():
            await anyio.sleep(LOOK)
            if time.monotonic() - told >= BEAT:
                await self._say({"type": "beat"})
                told = time.monotonic()
        tasks.cancel_scope.cancel()

    async def listen(self, tasks: anyio.abc.TaskGroup) -> None:
        """Handle the client's messages until it leaves."""
        while True:
            text = await read_message(self._socket)
            try:
                said = decode(text, Said)
                if isinstance(said, Ping):
                    await self._say({"type": "pong"})
                elif isinstance(said, Unwatch):
                    if said.id in self._watched:
                        self._watched[said.id].cancel()
                else:
                    self._begin(said, tasks)
            except (LmagentError, msgspec.DecodeError) as error:
                await self._say({"type": "error", **_told(error)})

    def _is_known(self) -> bool:
        """Whether the client would still be admitted."""
        try:
            return self._access.caller(*credentials(self._headers)) != "anyone"
        except LmagentError:  # the revoked cookies cannot be read, so no cookie counts
            return False

    async def _say(self, message: dict[str, Any]) -> None:
        await self._socket.send_text(msgspec.json.encode(message).decode())

    def _begin(self, said: Watch | WatchAll, tasks: anyio.abc.TaskGroup) -> None:
        if said.id in self._watched:
            text = f"something is watched as {said.id!r} already"
            raise Refusal(409, "in_use", text, fix="choose another id, or unwatch it and wait until it has ended")
        if len(self._watched) >= MOST:
            text = f"one socket watches {MOST} streams at most, so {said.id!r} is not watched"
            raise Refusal(429, "too_many", text, fix="unwatch something, or watch_all")
        self._watched[said.id] = anyio.CancelScope()
        tasks.start_soon(self._follow, said)

    async def _follow(self, said: Watch | WatchAll) -> None:
        """Send the events of a stream and the message about its end."""
        end: dict[str, Any] = {"type": "ended", "id": said.id}
        with self._watched[said.id]:
            try:
                if isinstance(said, Watch):
                    await check_place(self._gateway, said.session, said.after)
                    watched = self._gateway.broadcast.watch(said.session, said.after)
                else:
                    watched = self._gateway.broadcast.watch_all(said.after)
                async with watched as watching:
                    cursor = {"cursor": watching.cursor} if watching.cursor else {}
                    await self._say({"type": "watching", "id": said.id, **cursor})
                    while frames := await watching.take():
                        for message in _messages(said.id, frames):
                            await self._socket.send_text(message)
            except (LmagentError, OSError) as error:
                end |= _told(error)
        del self._watched[said.id]  # before the message, so that the client may use the name again
        await self._say(end)


def _told(error: Exception) -> dict[str, Any]:
    return {"status": status_of(error), "error": failure_of(error).error}


def _messages(id: str, frames: Sequence[Frame]) -> Iterator[str]:
    """Build messages from the JSON of the events, without decoding them."""
    piece: list[Frame] = []
    size = 0
    for frame in frames:
        if size and size + len(frame.data) > PIECE:
            yield _message(id, piece)
            piece, size = [], 0
        piece.append(frame)
        size += len(frame.data)
    yield _message(id, piece)


def _message(id: str, piece: Sequence[Frame]) -> str:
    cursor = b'"cursor":%b,' % msgspec.json.encode(piece[-1].cursor) if piece[-1].cursor else b""
    head = b'{"type":"events","id":%b,%b"events":[' % (msgspec.json.encode(id), cursor)
    return (head + b",".join(frame.data for frame in piece) + b"]}").decode()


SOCKETS = (Socket("/api/socket", tell, place="gateway"),)
