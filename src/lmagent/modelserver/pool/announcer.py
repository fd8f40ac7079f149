"""Announcer: a line for everything that happens, to everyone who listens."""

from __future__ import annotations

import time
import weakref
from collections import deque
from collections.abc import AsyncIterator

import anyio

BACKLOG = 1000
"""Lines that are kept for a listener who is slow; the oldest are dropped then."""


class Listener:
    """The lines from now on; endless."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=BACKLOG)
        self._news = anyio.Event()

    def __aiter__(self) -> AsyncIterator[str]:
        return self

    async def __anext__(self) -> str:
        while not self._lines:
            self._news = anyio.Event()
            await self._news.wait()
        return self._lines.popleft()

    def put(self, line: str) -> None:
        """Give it a line."""
        self._lines.append(line)
        self._news.set()


class Announcer:
    """Says what happens. A listener that nobody holds any more is forgotten."""

    def __init__(self) -> None:
        self._listeners: weakref.WeakSet[Listener] = weakref.WeakSet()

    def say(self, now: float, text: str) -> None:
        """Tell all listeners."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))
        for listener in list(self._listeners):
            listener.put(f"{stamp} {text}")

    def listen(self) -> Listener:
        """A new listener."""
        listener = Listener()
        self._listeners.add(listener)
        return listener
