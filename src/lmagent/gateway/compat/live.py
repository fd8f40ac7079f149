"""`/ws/activity`: live activity of all sessions. A separate route: `activity` cannot be a session's id."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress

import anyio
import msgspec
from anyio.streams.memory import MemoryObjectSendStream
from msgspec import Struct

from lmagent.core.decoding import decode_json
from lmagent.core.errors import ShuttingDown
from lmagent.core.events import decode
from lmagent.gateway.broadcast.index_feed import BEGINNING, FeedWatcher
from lmagent.gateway.compat.socket import converse, run_socket
from lmagent.gateway.compat.words import Told
from lmagent.gateway.gateway import Gateway
from lmagent.gateway.http.route import Socket, Talk
from lmagent.store.activity import Activity, activity_of

REMEMBERED = 4096
"""Events remembered so that each is sent only once."""


class _Named(Struct, frozen=True):
    session: str


class _Any(Struct, frozen=True):
    type: str


async def show(talk: Talk) -> None:
    """Send the activity of all sessions, from the opening of the socket until the client leaves."""
    feed = _Feed(talk.gateway)
    async with AsyncExitStack() as watching:
        following = await watching.enter_async_context(talk.gateway.broadcast.watch_all())
        await talk.socket.accept()

        async def work(telling: MemoryObjectSendStream[Told], read: Callable[[], Awaitable[bytes]]) -> None:
            async def tell() -> None:
                nonlocal following
                with suppress(ShuttingDown):  # the gateway is about to stop
                    while True:
                        await feed.tell(following, telling)
                        following = await watching.enter_async_context(talk.gateway.broadcast.watch_all(BEGINNING))
                tasks.cancel_scope.cancel()

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(tell)
                while True:
                    await telling.send(_answer(await read()))

        await run_socket(talk, work)


class _Feed:
    """Sends each event once to a client: copied sessions, cleared conversations and rebuilt indexes repeat events."""

    def __init__(self, gateway: Gateway) -> None:
        self._since = gateway.host.clock.now()
        self._known: dict[tuple[str, float], None] = {}

    async def tell(self, following: FeedWatcher, telling: MemoryObjectSendStream[Told]) -> None:
        while numbered := await following.take():
            for one in numbered:
                event, session = decode(one.data), decode_json(one.data, _Named).session
                line = activity_of(session, event) if event.ts >= self._since else None
                key = (event.id, event.ts)
                if line is None or line.type not in ("tool_call", "tool_result") or key in self._known:
                    continue
                self._known[key] = None
                if len(self._known) > REMEMBERED:
                    self._known.pop(next(iter(self._known)))
                await telling.send(_told(line))


def _told(line: Activity) -> Told:
    told = {"type": line.type, "session_id": line.session, "tool": line.tool, "timestamp": line.ts}
    if line.type == "tool_call":
        return {**told, "summary": line.summary}
    return {
        **told,
        "result_preview": line.summary,
        "duration_ms": line.duration_ms,
        "success": line.status == "ok",
    }


def _answer(text: bytes) -> Told:
    try:
        asked = decode_json(text, _Any).type
    except (msgspec.DecodeError, UnicodeDecodeError):
        asked = ""
    return {"type": "pong"} if asked == "ping" else {"type": "error", "message": "this socket only tells; send ping"}


SOCKETS = (Socket("/ws/activity", show), Socket("/ws/{session}", converse))
