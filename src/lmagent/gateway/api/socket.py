"""`/api/socket`: events over one WebSocket, of as many sessions as a client watches.

Browsers keep six HTTP/1.1 connections to one address, and each stream of server-sent events occupies one; sockets are
counted apart. The streams and their guarantees are the same: the client chooses a stream's name and where it begins;
the stream ends with one message, and may then be started again.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Annotated, Any

import anyio
import anyio.abc
import msgspec
from msgspec import Meta, Struct

from lmagent.core.errors import LmagentError, ungrouped
from lmagent.gateway.api.events import BEAT, HIGHEST, check_place
from lmagent.gateway.http.errors import Refusal, failure_of, status_of
from lmagent.gateway.http.guard import Visitor
from lmagent.gateway.http.route import Socket, Talk, decode
from lmagent.gateway.http.sockets import read_message, until_gone

MOST = 64
"""Streams per socket; the queue of a slow client is bounded for each of them."""

PIECE = 256_000
"""Bytes of events per message, so that a long history does not hold up the other streams."""

LOOK = 1.0
"""Seconds between two checks of the client's login."""

LOGGED_OUT = 4401
"""Close code for a login that has ended (RFC 6455, 7.4.2: 4000 to 4999 are for applications)."""

Name = Annotated[str, Meta(min_length=1, max_length=64)]
"""The client's name for a stream."""


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
Found = Sequence[tuple[str, bytes]]
"""Events as JSON, each with its cursor if the stream has cursors."""

Take = Callable[[], Awaitable[Found]]
"""Waits for the next events of a stream; empty at its end."""


async def tell(talk: Talk) -> None:
    """Send a client its streams until it leaves, its login ends, or the gateway stops."""
    await talk.socket.accept()
    line = _Line(talk)
    with until_gone():
        with ungrouped():
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(line.stay, tasks.cancel_scope)
                tasks.start_soon(line.listen, tasks)
        await talk.socket.close(LOGGED_OUT, "the login has ended")


class _Line:
    """One accepted socket, and its streams."""

    def __init__(self, talk: Talk) -> None:
        self._gateway = talk.gateway
        self._socket = talk.socket
        self._access = talk.access
        self._visitor: Visitor = talk.socket.scope["lmagent"]
        self._watched: dict[str, anyio.CancelScope] = {}

    async def stay(self, scope: anyio.CancelScope) -> None:
        """Send a heartbeat, and cancel the scope when the client's login ends."""
        told = time.monotonic()
        while self._is_known():
            await anyio.sleep(LOOK)
            if time.monotonic() - told >= BEAT:
                await self._say({"type": "beat"})
                told = time.monotonic()
        scope.cancel()

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
        headers = self._visitor.headers
        try:
            return self._access.caller(headers.get(b"authorization"), headers.cookies) != "anyone"
        except LmagentError:  # the revoked cookies cannot be read, so no cookie counts
            return False

    async def _say(self, message: dict[str, Any]) -> None:
        await self._socket.send_text(msgspec.json.encode(message).decode())

    # --- streams ----------------------------------------------------------------------------------------------------

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
                async with self._opened(said) as take:
                    await self._say({"type": "watching", "id": said.id})
                    while found := await take():
                        for piece in _pieces(found):
                            await self._socket.send_text(_message(said.id, piece))
            except (LmagentError, OSError) as error:
                end |= _told(error)
        del self._watched[said.id]  # before the message, so that the client may use the name again
        await self._say(end)

    def _opened(self, said: Watch | WatchAll) -> AbstractAsyncContextManager[Take]:
        return self._session(said) if isinstance(said, Watch) else self._all(said)

    @asynccontextmanager
    async def _session(self, said: Watch) -> AsyncGenerator[Take]:
        await check_place(self._gateway, said.session, said.after)
        async with self._gateway.broadcast.watch(said.session, said.after) as watching:

            async def take() -> Found:
                return [("", frame.data) for frame in await watching.take()]

            yield take

    @asynccontextmanager
    async def _all(self, said: WatchAll) -> AsyncGenerator[Take]:
        async with self._gateway.broadcast.watch_all(said.after) as following:

            async def take() -> Found:
                return [(one.cursor, one.data) for one in await following.take()]

            yield take


def _told(error: Exception) -> dict[str, Any]:
    return {"status": status_of(error), "error": failure_of(error).error}


def _pieces(found: Found) -> list[Found]:
    """Split the events into messages."""
    pieces: list[list[tuple[str, bytes]]] = [[]]
    size = 0
    for one in found:
        if size and size + len(one[1]) > PIECE:
            pieces.append([])
            size = 0
        pieces[-1].append(one)
        size += len(one[1])
    return list(pieces)


def _message(id: str, piece: Found) -> str:
    """Build a message from the JSON of its events, without decoding them."""
    cursor = b'"cursor":%b,' % msgspec.json.encode(piece[-1][0]) if piece[-1][0] else b""
    head = b'{"type":"events","id":%b,%b"events":[' % (msgspec.json.encode(id), cursor)
    return (head + b",".join(data for _, data in piece) + b"]}").decode()


SOCKETS = (Socket("/api/socket", tell),)
