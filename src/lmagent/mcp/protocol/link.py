"""Link: the state of a connection to a server, and why it ended."""

from __future__ import annotations

import anyio


class McpLink:
    """Made by the connection's owner; a transport sets the reason before it ends the connection.

    Attributes:
        root: the workspace's path as the server sees it.
    """

    def __init__(self, root: str) -> None:
        self.root = root
        self.ended = anyio.Event()
        self.reason = ""
        self.fix = ""
        self.answered = ""  # the last refusal of an HTTP server
        self.needs_login = False

    def end(self, reason: str, fix: str = "") -> None:
        """Note why the connection ended; the first reason counts."""
        if not self.reason:
            self.reason, self.fix = reason, fix
        self.ended.set()
