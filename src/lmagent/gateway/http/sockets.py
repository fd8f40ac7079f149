"""Sockets: helpers for all WebSockets of the gateway."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import anyio
from starlette.websockets import WebSocket, WebSocketDisconnect


async def read_message(socket: WebSocket) -> bytes:
    """Return the next message of an accepted socket, text or bytes.

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
    """End the work on a socket quietly when the client goes."""
    try:
        yield
    except (WebSocketDisconnect, anyio.BrokenResourceError):
        return
    except RuntimeError as closed:  # raised by Starlette for a send after the end
        if "close" not in str(closed):
            raise
