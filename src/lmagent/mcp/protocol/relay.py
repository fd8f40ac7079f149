"""Relay: passes what a server sends during a call to the caller's handler, on the caller's event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from functools import partial
from typing import TypeVar

from anyio.abc import TaskGroup

from lmagent.mcp.spec import CallHandler, Elicitation, ElicitationAnswer, SamplingRequest

T = TypeVar("T")


class CallRelay:
    """See `CallHandler`; `group` is the caller's."""

    def __init__(self, handler: CallHandler, group: TaskGroup) -> None:
        self._handler = handler
        self._group = group
        self._loop = asyncio.get_running_loop()
        self._is_closed = False

    def close(self) -> None:
        self._is_closed = True

    def progress(self, text: str) -> None:
        self._loop.call_soon_threadsafe(self._show, text)

    def _show(self, text: str) -> None:
        if not self._is_closed:
            self._handler.progress(text)

    async def sample(self, request: SamplingRequest) -> str | None:
        return await self._answered(partial(self._handler.sample, request))

    async def elicit(self, request: Elicitation) -> ElicitationAnswer:
        return await self._answered(partial(self._handler.elicit, request))

    async def _answered(self, ask: Callable[[], Awaitable[T]]) -> T:
        answer: Future[T] = Future()

        async def work() -> None:
            try:
                result = await ask()
            except Exception as error:  # noqa: BLE001 - the server learns that it failed, and continues the call
                answer.set_exception(error)
            except BaseException:
                answer.cancel()
                raise
            else:
                if not answer.cancelled():
                    answer.set_result(result)

        def begin() -> None:
            if self._is_closed:
                answer.cancel()
            else:
                self._group.start_soon(work)

        self._loop.call_soon_threadsafe(begin)
        return await asyncio.wrap_future(answer)
