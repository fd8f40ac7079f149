"""Work on the database in threads, so that the event loop does not wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

import anyio

from lmagent.cluster.database import CONNECTIONS

T = TypeVar("T")


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(2 * CONNECTIONS, "cluster")


async def in_thread(work: Callable[[], T]) -> T:
    """Return the result of `work`, which runs in a thread.

    The work always ends before this returns: a task that is cancelled meanwhile gets the result, and is cancelled at
    its next await. So the caller never misses that an event was written.
    """
    future = asyncio.get_running_loop().run_in_executor(_threads(), work)
    is_cancelled = False
    with anyio.CancelScope(shield=True):  # against anyio's cancellation; the loop is for asyncio's own
        while not future.done():
            try:
                await asyncio.wait([future])
            except asyncio.CancelledError:
                is_cancelled = True
    if is_cancelled and (task := asyncio.current_task()) is not None:
        task.cancel()
    return future.result()
