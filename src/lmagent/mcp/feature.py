"""Feature: the tools of MCP servers for the model, listed in a note at the tail; see `spec.py` for the servers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from lmagent.core.events import Event, StepStarted
from lmagent.core.tool import Tool
from lmagent.engine.session import Session
from lmagent.mcp import listing
from lmagent.mcp.catalogue import Catalogue, OutsideTools
from lmagent.mcp.spec import Servers
from lmagent.mcp.tools import Making

if TYPE_CHECKING:
    from lmagent.mcp.consent import UserModel

DELAY = 0.3
"""Seconds after the start of the first step until the servers start: by then its request is out."""


class Surroundings(Struct, frozen=True):
    """The facts that the feature needs.

    Attributes:
        taken: returns the names of all tools of ours, their aliases too.
        allowed: whether the settings allow a tool of this name.
        profile: returns the name of the window's profile.
        model: returns the user's model, beside the conversation.
    """

    workspace: Path
    data_dir: Path
    taken: Callable[[], Collection[str]]
    allowed: Callable[[str], bool]
    profile: Callable[[], str]
    model: Callable[[], UserModel | None]


class McpFeature:
    """The tools of the servers of a workspace."""

    def __init__(self, servers: Servers, around: Surroundings) -> None:
        self.servers = servers
        self._profile = around.profile
        self._timer: threading.Timer | None = None
        self._has_begun = False
        self._changed = servers.changed
        self.catalogue = Catalogue(servers, around.taken, around.allowed)
        servers.changed = self._forget
        self._making = Making(servers, self.catalogue, around.data_dir, around.workspace, around.model)
        self.outside = OutsideTools(self.catalogue, self._making.tool)

    @property
    def tools(self) -> Iterable[Tool]:
        """Return our own tools about servers; the note names them."""
        return (self._making.describe(), self._making.resource())

    def note(self) -> str:
        """Return the list of the servers' tools for the model."""
        return listing.note(self.catalogue.rows, self._profile())

    def watch(self, session: Session) -> None:
        """Start the servers when the first session begins its first turn: its request is first, and waits for none."""
        if not self._has_begun:
            session.listen(self._begin)

    def _begin(self, event: Event) -> None:
        if self._has_begun or not isinstance(event, StepStarted):
            return
        self._has_begun = True
        self._timer = threading.Timer(DELAY, self.servers.start)
        self._timer.daemon = True
        self._timer.start()

    def _forget(self, name: str) -> None:
        self.catalogue.forget()
        self._changed(name)

    async def aclose(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        await self.servers.aclose()
