"""Servers: the MCP servers that an editor hands over with a session, as specs of ours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lmagent.mcp.spec import ServerSpec


def specs_of(servers: Sequence[Any], cwd: str) -> tuple[ServerSpec, ...]:
    """Return the servers that we can reach: programs, and addresses by HTTP."""
    return tuple(spec for server in servers if (spec := _spec(server, cwd)) is not None)


def _spec(server: Any, cwd: str) -> ServerSpec | None:
    kind = getattr(server, "type", "stdio")
    if kind == "http":
        headers = {header.name: header.value for header in server.headers}
        return ServerSpec(server.name, url=server.url, headers=headers, scope="client")
    if kind == "stdio":
        env = {variable.name: variable.value for variable in server.env}
        return ServerSpec(server.name, (server.command, *server.args), env, cwd=cwd, scope="client")
    return None
