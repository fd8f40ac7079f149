"""`lmagent mcp serve`: our tools and our agent for the program that starts it."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lmagent.cli.shared import host_options, model_options, say, with_host, workspace_option

if TYPE_CHECKING:
    from lmagent.app.host import Host


@click.command()
@click.option("--tools", metavar="NAMES", help="Offer only these, separated by commas: read,grep,delegate.")
@workspace_option
@model_options
@click.pass_obj
def serve(of_group: Path | None, workspace: Path | None, tools: str | None, **given: Any) -> int:
    """Offer the tools of a workspace, and the agent itself, to another program on standard input and output.

    The other program starts this command; docs/mcp-server.md has the settings of several. Its calls pass the same gate
    as the agent's own: the program's user is asked, if it can ask. To serve over HTTP: lmagent web --mcp-serve
    """
    from lmagent.mcpserver.service import chosen

    names = chosen(tools) if tools is not None else ()

    async def run(host: Host) -> None:
        from lmagent.mcpserver.stdio import serve as serve_stdio

        gc.freeze()
        gc.enable()
        await serve_stdio(host, names, say)

    with_host(host_options(workspace or of_group, given, attended=True), run)
    return 0
