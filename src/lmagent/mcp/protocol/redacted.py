"""Redacted: the messages of a server without the keys and tokens that it was given, whatever quotes them.

All that a server says passes here: results, errors, lists, progress, questions and lines of its log.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from lmagent.engine.redact import Redactor


@asynccontextmanager
async def redacted(transport: AbstractAsyncContextManager[Any], redactor: Redactor) -> AsyncGenerator[Any]:
    """Yield the streams of a transport of the SDK; the messages that come from the server hold no secrets."""
    async with transport as (incoming, outgoing):
        yield _Redacted(incoming, redactor), outgoing


class _Redacted:
    """A stream of messages from a server. The session only iterates it, and asks for the context of a message."""

    def __init__(self, inner: Any, redactor: Redactor) -> None:
        self._inner = inner
        self._redactor = redactor

    @property
    def last_context(self) -> Any:
        return getattr(self._inner, "last_context", None)

    async def __aenter__(self) -> _Redacted:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *end: Any) -> Any:
        return await self._inner.__aexit__(*end)

    def __aiter__(self) -> _Redacted:
        return self

    async def __anext__(self) -> Any:
        item = await anext(self._inner)
        if (message := getattr(item, "message", None)) is not None:  # else an error of the transport
            for part in ("params", "result"):
                if getattr(message, part, None) is not None:
                    setattr(message, part, self._redactor.value(getattr(message, part)))
            if (error := getattr(message, "error", None)) is not None:
                error.message = self._redactor.text(error.message)
                error.data = self._redactor.value(error.data)
        return item
