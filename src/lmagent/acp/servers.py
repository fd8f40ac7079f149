"""Servers: the MCP servers that an editor hands over with a session, as specs of ours."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lmagent.mcp.spec import INSTALLERS, INSTALLING, Needs, ServerSpec


def specs_of(servers: Sequence[Any]) -> tuple[ServerSpec, ...]:
    """Return the servers that we can reach: programs, and addresses by HTTP."""
    return tuple(spec for server in servers if (spec := _spec(server)) is not None)


def _spec(server: Any) -> ServerSpec | None:
    kind = getattr(server, "type", "stdio")
    if kind == "http":
        headers = {header.name: header.value for header in server.headers}
        return ServerSpec(server.name, url=server.url, headers=headers, scope="client")
    if kind == "stdio":
        env = {variable.name: variable.value for variable in server.env}
        command = (server.command, *server.args)
        if Path(server.command).name in INSTALLERS:
            needs = Needs(network=("packages",))
            return ServerSpec(server.name, command, env, needs=needs, scope="client", start_timeout=INSTALLING)
        return ServerSpec(server.name, command, env, scope="client")
    return None
