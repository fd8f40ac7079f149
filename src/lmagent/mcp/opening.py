"""Opening: the MCP servers of a workspace, from its configuration."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from lmagent.config.settings import Settings
from lmagent.mcp.config import beginning, is_name, load_servers
from lmagent.mcp.protocol.servers import McpServers
from lmagent.mcp.spec import ServerSpec
from lmagent.sandbox.environment import SandboxRequest


def open_servers(
    workspace: Path, settings: Settings, sandbox: SandboxRequest, client: Sequence[ServerSpec] = ()
) -> McpServers:
    """Return the configured servers of a workspace; none of them runs yet.

    Args:
        sandbox: the options of the sandbox that the workspace's commands have.
        client: servers that an editor handed over; a configured server of the same name wins.
    """
    loaded = load_servers(workspace, settings)
    known = {beginning(spec.name) for spec in loaded.specs}
    offered = [spec for spec in client if settings.enable_mcp]
    added = {beginning(spec.name): spec for spec in offered if is_name(spec.name) and beginning(spec.name) not in known}
    loaded = replace(loaded, specs=(*loaded.specs, *added.values()))
    return McpServers(workspace, loaded, settings.agent_data_dir, sandbox, _auth_of)


def _auth_of(spec: ServerSpec, data: Path) -> Any:
    from lmagent.mcp.oauth import auth_of  # only a server that starts needs it

    return auth_of(spec, data)
