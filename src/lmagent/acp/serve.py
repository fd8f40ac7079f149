"""Serve: the agent on standard input and output, until the editor closes them or a signal ends the process."""

from __future__ import annotations

import sys
from collections.abc import Callable

import anyio

from lmagent.acp.agent import EditorAgent
from lmagent.app.options import HostOptions
from lmagent.app.signals import ending
from lmagent.core.errors import ungrouped


async def serve(options: HostOptions, say: Callable[[str], None]) -> None:
    """Serve the editor. Turns that run at the end stay open in the log: the next prompt to the session finds them."""
    with ungrouped():
        async with anyio.create_task_group() as tasks:
            agent = EditorAgent(options, tasks, say)
            if sys.platform != "win32":
                tasks.start_soon(_end_at_signals, agent, tasks.cancel_scope)
            await agent.editor.serve()
            await agent.folders.end()
            tasks.cancel_scope.cancel()


async def _end_at_signals(agent: EditorAgent, scope: anyio.CancelScope) -> None:
    with anyio.open_signal_receiver(*ending()) as signals:
        async for _ in signals:
            with anyio.CancelScope(shield=True):
                await agent.folders.end()
            scope.cancel()
