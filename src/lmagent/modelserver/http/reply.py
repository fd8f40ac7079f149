"""Reply: the answer to one client. An error fits in at any point of it."""

from __future__ import annotations

import time
from collections.abc import Sequence

from lmagent.modelserver.errors import body_of, described, log_unexpected, status_of
from lmagent.modelserver.http.bodies import Send
from lmagent.providers import jsontext

Fields = Sequence[tuple[bytes, bytes]]

_EVENTS: Fields = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)


class ClientReply:
    def __init__(self, send: Send, route: str = "") -> None:
        self._send = send
        self._route = route
        self._ended = False
        self._writing = 0.0
        self.status = 0  # the HTTP status that was sent; 0 before
        self.failed = False  # an error was sent

    async def whole(self, status: int, body: bytes, content_type: bytes = b"application/json") -> None:
        self.status, self._ended = status, True
        fields = [(b"content-type", content_type), (b"content-length", b"%d" % len(body))]
        if status == 401:
            fields.append((b"www-authenticate", b"Bearer"))
        await self._send({"type": "http.response.start", "status": status, "headers": fields})
        await self._send({"type": "http.response.body", "body": body})

    async def open(self) -> None:
        """Begin a stream of events, unless it has begun."""
        if self.status:
            return
        self.status = 200
        await self._send({"type": "http.response.start", "status": 200, "headers": list(_EVENTS)})

    async def write(self, events: bytes) -> None:
        self._writing = time.monotonic()
        await self._send({"type": "http.response.body", "body": events, "more_body": True})
        self._writing = 0.0

    def stalled(self, seconds: float) -> bool:
        """Tell whether the client has taken nothing for that long although there was something to take."""
        return self._writing > 0 and time.monotonic() - self._writing > seconds

    async def comment(self) -> None:
        """Show that the server is alive: every reader of events skips this line."""
        await self.open()
        await self.write(b": waiting for the model\n\n")

    async def end(self) -> None:
        if not self._ended:
            self._ended = True
            await self._send({"type": "http.response.body", "body": b""})

    async def fail(self, error: Exception) -> None:
        """Send an error as the answer, or as the last event of a stream that has begun."""
        self.failed = True
        log_unexpected(error)
        if self._ended:
            return
        if not self.status:
            await self.whole(status_of(error), body_of(error))
            return
        await self.write(self._error_event(error))
        await self.end()

    def _error_event(self, error: Exception) -> bytes:
        told = described(error)
        if self._route == "messages":
            return b"event: error\ndata: " + jsontext.dumps({"type": "error", "error": told}) + b"\n\n"
        if self._route == "responses":
            flat = {"type": "error", "code": told["code"], "message": told["message"], "param": told["param"]}
            return b"event: error\ndata: " + jsontext.dumps({**flat, "error": told}) + b"\n\n"
        return b"data: " + jsontext.dumps({"error": told}) + b"\n\ndata: [DONE]\n\n"
