"""Catalogue: the tools of all servers under our names, as far as the present manifests name them.

It is made from the manifests, kept or present, whenever a server has changed. A `Tool` is made when it is called or
described: a session with hundreds of tools begins as fast as any other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from functools import cached_property

from msgspec import Struct

from lmagent.core.model import ToolSpec
from lmagent.core.tool import plain
from lmagent.mcp.names import bare_names, server_parts, tool_names
from lmagent.mcp.schemas import simplified
from lmagent.mcp.spec import McpManifest, McpState, McpTool, Servers

ACTIVE = ("idle", "starting", "ready", "failed", "login")
"""States of servers whose tools are listed; `failed` ones start again when they are called."""


class ServerTool(Struct, frozen=True):
    """A tool of a server, by our `name`; `tool` is None if the server has no such tool, or is not known to have it."""

    name: str
    server: str
    tool: McpTool | None
    called: str  # the server's own name of it


class Named:
    """A tool's names, for the reader of calls in text; its schema is made only if such a call comes."""

    def __init__(self, found: ServerTool, aliases: tuple[str, ...]) -> None:
        self.name = found.name
        self.aliases = aliases
        self._found = found

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec(self.name, "", simplified(self._found.tool.schema if self._found.tool is not None else {}))


class ServerRow(Struct, frozen=True):
    """A server in the catalogue; `manifest` is None if it was never asked."""

    state: McpState
    part: str  # the beginning of its tools' names
    manifest: McpManifest | None
    tools: tuple[ServerTool, ...] = ()

    @property
    def name(self) -> str:
        return self.state.spec.name


class Catalogue:
    """The tools of `servers`.

    Args:
        taken: returns the names that are ours, when all are registered.
        allowed: whether the settings allow a tool of this name.
    """

    def __init__(self, servers: Servers, taken: Callable[[], Collection[str]], allowed: Callable[[str], bool]) -> None:
        self._servers = servers
        self._taken_names = taken
        self._allowed = allowed
        self._rows: tuple[ServerRow, ...] = ()
        self._is_stale = True
        self._index: dict[str, ServerTool] = {}
        self._stubs: tuple[Named, ...] = ()

    @cached_property
    def _taken(self) -> frozenset[str]:
        return frozenset(name.lower() for name in self._taken_names())

    def forget(self) -> None:
        """Look at the servers again at the next call. May be called on any thread."""
        self._is_stale = True

    @property
    def rows(self) -> tuple[ServerRow, ...]:
        """Return the servers that may be used, in the order of their names."""
        if self._is_stale:
            self._is_stale = False  # before the look, so that a change during it is not lost
            self._rows = self._made()
            self._index = {}
        return self._rows

    def _indexed(self) -> dict[str, ServerTool]:
        """Return the tools by all their names. It is made when the first reply is read, after the first request."""
        rows = self.rows
        if not self._index:
            self._index, self._stubs = _indexed(rows, self._taken)
        return self._index

    def _made(self) -> tuple[ServerRow, ...]:
        states = self._servers.states()
        parts = server_parts((state.spec.name for state in states), self._taken)
        return tuple(
            ServerRow(state, parts[name], manifest, self._found(name, parts[name], manifest))
            for state in states
            if state.status in ACTIVE
            for name in [state.spec.name]
            for manifest in [self._servers.manifest(name)]
        )

    def _found(self, server: str, part: str, manifest: McpManifest | None) -> tuple[ServerTool, ...]:
        tools = {tool.name: tool for tool in (manifest.tools if manifest is not None else ())}
        names = tool_names(part, tools)
        found = (ServerTool(names[real], server, tool, real) for real, tool in sorted(tools.items()))
        return tuple(each for each in found if self._allowed(each.name) and not tools[each.called].fault)

    def named(self) -> tuple[Named, ...]:
        """Return the names of all tools, with their aliases."""
        return self._stubs if self._indexed() else ()

    def find(self, name: str) -> ServerTool | None:
        """Return the tool of a name in any spelling; of an unknown one if it begins with a server's part."""
        index = self._indexed()
        for spelled in (name, plain(name)):
            if (found := index.get(spelled)) is not None:
                return found
        for row in self.rows:
            part, mark, rest = name.partition("_")
            if mark and rest and part.lower() == row.part.lower() and re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name):
                return ServerTool(name, row.name, None, rest) if self._allowed(name) else None
        return None

    def row(self, server: str) -> ServerRow | None:
        """Return a server by its name, or the beginning of its tools' names."""
        wanted = server.strip().lower()
        rows = {row.name.lower(): row for row in self.rows}
        return rows.get(wanted) or {row.part.lower(): row for row in self.rows}.get(wanted)


def _indexed(rows: tuple[ServerRow, ...], taken: Collection[str]) -> tuple[dict[str, ServerTool], tuple[Named, ...]]:
    """Return the tools by all their names, and the names for the reader of calls in text. The first name wins."""
    tools = [found for row in rows for found in row.tools]
    index = {found.name: found for found in tools}
    for found in tools:  # before any bare name, which may look like a rule's name of another tool
        index.setdefault(rule_name(found), found)
    unique = bare_names({row.name: {found.called for found in row.tools} for row in rows}, taken)
    stubs = list[Named]()
    for found in tools:
        bare = (found.called,) if unique.get(found.called) == found.server else ()
        names = dict.fromkeys((rule_name(found), plain(found.name), *bare, *map(plain, bare)))
        mine = [name for name in names if name.lower() not in taken and index.setdefault(name, found) is found]
        stubs.append(Named(found, tuple(mine)))
    return index, tuple(stubs)


def rule_name(found: ServerTool) -> str:
    """Return the name that other agents' permission rules have for a tool."""
    return f"mcp__{found.server}__{found.called}"
