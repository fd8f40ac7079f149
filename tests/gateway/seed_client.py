"""A client written from the documentation of an earlier agent alone: its HTTP routes and its socket's messages."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gateway_kit import Running
from websockets.sync.client import ClientConnection, connect

PLAN = json.dumps(
    {
        "title": "Report",
        "goal": "a.txt says hello",
        "risk_areas": [],
        "steps": [{"id": "one", "description": "write a.txt", "verification": "read it"}],
    }
)
"""A plan as a model answers with it."""


class Chatting:
    """One socket at /ws/{session_id}."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.heard: list[dict[str, Any]] = []
        self._before: deque[dict[str, Any]] = deque()

    def join(self) -> None:
        """Wait until it is told all that happens: a message is taken only then."""
        self.say("ping")
        while (message := json.loads(self.socket.recv(20))) != {"type": "pong"}:
            self._before.append(message)

    def say(self, type: str, **fields: Any) -> None:
        self.socket.send(json.dumps({"type": type, **fields}))

    def hear(self, timeout: float = 20) -> dict[str, Any]:
        message = self._before.popleft() if self._before else json.loads(self.socket.recv(timeout))
        self.heard.append(message)
        return message

    def until(self, type: str, timeout: float = 20) -> dict[str, Any]:
        """The next message of a type; those before it are in `heard`."""
        while True:
            message = self.hear(timeout)
            if message["type"] == type:
                return message

    def ask(self, content: str) -> dict[str, Any]:
        """Send a message and wait for `done`."""
        self.say("message", content=content)
        return self.until("done")

    def types(self) -> list[str]:
        return [message["type"] for message in self.heard]


@contextmanager
def chatting(running: Running, session: str) -> Iterator[Chatting]:
    url = f"ws://127.0.0.1:{running.port}/ws/{session}"
    with connect(url, additional_headers=running.headers, open_timeout=20) as socket:
        client = Chatting(socket)
        client.join()
        yield client
