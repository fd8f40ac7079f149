"""Bodies of requests: refused if too large or too slow, whatever Content-Length says."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import anyio
from msgspec import Struct

from lmagent.gateway.http.errors import Refusal


class Patience(Struct, frozen=True):
    """How long a body may take.

    Attributes:
        silence: seconds between two pieces.
        whole: seconds for the whole body, plus the time that its size takes at `rate` bytes a second.
    """

    silence: float = 20.0
    whole: float = 60.0
    rate: int = 100_000


PATIENCE = Patience()


def limited(
    limit: int, headers: Any, receive: Callable[[], Awaitable[MutableMapping[str, Any]]], patience: Patience
) -> Callable[[], Awaitable[MutableMapping[str, Any]]]:
    """Return a `receive` that refuses a body larger than `limit` bytes (413) or too slow (408)."""
    told = headers.get(b"content-length")
    too_large = Refusal(413, "too_large", f"the body is larger than {limit:,} bytes", fix="send less")
    taken = 0
    ended = False
    ends: float | None = None

    async def receiver() -> MutableMapping[str, Any]:
        nonlocal taken, ended, ends
        if ended:  # the next message can only be that the client has gone
            return await receive()
        if told.isdigit() and int(told) > limit:
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
