"""Stdio: serve one client on the standard streams. Standard output carries the protocol alone."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress

import anyio

from lmagent.app.host import Host
from lmagent.app.runner import Runner
from lmagent.app.signals import ending
from lmagent.core.errors import ungrouped
from lmagent.mcpserver.service import ToolService
from lmagent.mcpserver.watch import SURFACE


async def serve(host: Host, names: tuple[str, ...], say: Callable[[str], None]) -> None:
    """Serve until the client closes our standard input. A turn that runs then ends as interrupted."""
    from mcp.server.runner import serve_loop  # 1 s of processor time
    from mcp.server.stdio import stdio_server

    from lmagent.mcpserver.protocol import server_of

    runner = Runner(host, say, surface=SURFACE, attended=True, resumable=False)
    server = server_of(ToolService(runner, names, elsewhere=False))
    with suppress(BrokenPipeError), ungrouped():  # a client may close our output first
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_end_on_signal, host, runner)
            async with runner.running(), stdio_server() as (reader, writer):
                options = server.create_initialization_options()
                await serve_loop(server, reader, writer, lifespan_state={}, init_options=options)
            tasks.cancel_scope.cancel()


async def _end_on_signal(host: Host, runner: Runner) -> None:
    """End the sessions and the process: a thread waits for standard input, and nothing else can end its wait."""
    with anyio.open_signal_receiver(signal.SIGINT, *ending()) as signals:
        async for received in signals:
            await runner.end()
            await host.aclose()
            os._exit(128 + received)
