"""`/ws/activity`: what happens in all sessions, live. A route of its own: no session can be called so."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
import msgspec
from anyio.streams.memory import MemoryObjectSendStream
from msgspec import Struct

from lmagent.core.events import decode
from lmagent.gateway.http.route import Socket, Talk
from lmagent.gateway.hub.hub import Hub
from lmagent.gateway.seed.socket import converse, run_socket
from lmagent.gateway.seed.words import Told
from lmagent.store.activity import Activity, activity_of

REMEMBERED = 4096
"""Events of which it is known that they were told."""


class _Named(Struct, frozen=True):
    session: str


class _Any(Struct, frozen=True):
    type: str


async def show(talk: Talk) -> None:
    """Tell what happens in all sessions, from now on, until the client goes."""
    await talk.socket.accept()

    async def work(telling: MemoryObjectSendStream[Told], read: Callable[[], Awaitable[bytes]]) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_tell, talk.hub, telling)
            while True:
                await telling.send(_answer(await read()))

    await run_socket(talk, work)


async def _tell(hub: Hub, telling: MemoryObjectSendStream[Told]) -> None:
    """A session that is copied, or put aside, brings its old events along: they are not told, or not again."""
    since, told = hub.host.clock.now(), dict[tuple[str, float], None]()
    async with hub.watch_all() as following:
        while numbered := await following.take():
            for one in numbered:
                event, session = decode(one.data), msgspec.json.decode(one.data, type=_Named).session
                line = activity_of(session, event) if event.ts >= since else None
                key = (event.id, event.ts)
                if line is None or line.type not in ("tool_call", "tool_result") or key in told:
                    continue
                told[key] = None
                if len(told) > REMEMBERED:
                    told.pop(next(iter(told)))
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
        asked = msgspec.json.decode(text, type=_Any).type
    except (msgspec.DecodeError, UnicodeDecodeError):
        asked = ""
    return {"type": "pong"} if asked == "ping" else {"type": "error", "message": "this socket only tells; send ping"}


SOCKETS = (Socket("/ws/activity", show), Socket("/ws/{session}", converse))
