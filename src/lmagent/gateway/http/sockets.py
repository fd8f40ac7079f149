"""Sockets: what every WebSocket of the gateway has in common."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import anyio
from starlette.websockets import WebSocket, WebSocketDisconnect


async def read_message(socket: WebSocket) -> bytes:
    """The next message of an accepted socket, of either kind.

    Raises:
        WebSocketDisconnect: the client has gone.
    """
    message = await socket.receive()
    if message["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(message.get("code", 1000))
    text = message.get("text")
    return text.encode("utf-8", "replace") if text is not None else (message.get("bytes") or b"")


@contextmanager
def until_gone() -> Generator[None]:
    """Work on a socket, which ends quietly when the client goes."""
    try:
        yield
    except (WebSocketDisconnect, anyio.BrokenResourceError):
        return
    except RuntimeError as closed:  # Starlette's word for a send after the end
        if "close" not in str(closed):
            raise
