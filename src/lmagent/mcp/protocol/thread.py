"""Thread: the event loop of its own on which all servers of a workspace run."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import anyio
from anyio.abc import TaskGroup

from lmagent.core.errors import ToolError

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal

T = TypeVar("T")


class McpThread:
    """The thread. It is a daemon: a program that forgets to stop it can still end.

    Attributes:
        group: owns the tasks of the servers; used on the thread only.
    """

    group: TaskGroup

    def __init__(self) -> None:
        self._portal: BlockingPortal | None = None
        self._thread: threading.Thread | None = None
        self._is_up = threading.Event()
        self._lock = threading.Lock()
        self._is_closed = False

    def start(self) -> None:
        """Start the thread, unless it runs."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=anyio.run, args=(self._main,), name="mcp", daemon=True)
                self._thread.start()
        self._is_up.wait()

    def post(self, work: Callable[[], object]) -> None:
        """Do something on the thread, soon."""
        self.start()
        if self._portal is not None and not self._is_closed:
            self._portal.start_task_soon(_called, work)

    async def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do something on the thread, and return its result to the caller's event loop. Cancelled, it cancels it."""
        self.start()
        if self._portal is None or self._is_closed:
            raise ToolError("the MCP servers of this program were stopped")
        return await asyncio.wrap_future(self._portal.start_task_soon(work))

    def stop(self) -> None:
        """Cancel everything on the thread, and wait for its end. Blocks."""
        with self._lock:
            was_closed, self._is_closed = self._is_closed, True
        if was_closed or self._thread is None or self._portal is None:
            return
        self._portal.start_task_soon(_called, self._stopping.set)
        self._thread.join(10)

    async def _main(self) -> None:
        from anyio.from_thread import BlockingPortal  # no first request waits for it

        self._stopping = anyio.Event()
        async with BlockingPortal() as portal, anyio.create_task_group() as group:
            self.group, self._portal = group, portal
            self._is_up.set()
            await self._stopping.wait()
            group.cancel_scope.cancel()
            await portal.stop(cancel_remaining=True)


async def _called(work: Callable[[], object]) -> None:
    work()
