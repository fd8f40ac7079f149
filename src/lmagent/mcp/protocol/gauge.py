"""Gauge: a server's messages on their way to the session, in an amount that we can handle.

The SDK starts a task for each message, checks each value of a result, and keeps what it finds wrong with it: without
a bound, a message of some megabytes fills the memory. A server that sends too fast is made to wait.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, cast

import anyio
import mcp_types as types
from mcp.shared.message import SessionMessage

from lmagent.mcp.protocol.link import McpLink
from lmagent.mcp.schemas import fault

BURST = 200
"""Messages that are passed on at once."""

PAUSE = 0.2
"""Seconds that a burst takes at least."""

VALUES = 50_000
"""Values in a message, without the structured content of a result, which is not checked one by one."""

FAULT = "lmagent-fault"
"""The key of the reason, in our schema for a tool whose own schema no call can follow."""

UNANSWERED = 100
"""Requests of a server that may wait for our answers."""


@asynccontextmanager
async def gauged(transport: AbstractAsyncContextManager[Any], link: McpLink) -> AsyncGenerator[Any]:
    """Hold a transport open, and yield its streams with the bounds."""
    async with transport as (incoming, outgoing):
        yield (gauge := _Incoming(incoming, link)), _Outgoing(outgoing, gauge)


class _Incoming:
    """The stream of a server's messages; `last_context` is that of the inner stream."""

    def __init__(self, inner: Any, link: McpLink) -> None:
        self.last_context: Any = None
        self.unanswered = 0
        self._inner = inner
        self._link = link
        self._passed = 0
        self._since = 0.0

    async def receive(self) -> Any:
        await self._slow_down()
        item = await self._inner.receive()
        self.last_context = getattr(self._inner, "last_context", None)
        if isinstance(item, SessionMessage) and isinstance(item.message, types.JSONRPCRequest):
            self.unanswered += 1
            if self.unanswered > UNANSWERED:
                self._link.end(f"it sent more than {UNANSWERED} requests without waiting for the answers")
                raise anyio.EndOfStream
        return _bounded(item) if isinstance(item, SessionMessage) else item

    async def _slow_down(self) -> None:
        self._passed += 1
        if self._passed >= BURST:
            self._passed = 0
            await anyio.sleep(max(0.0, self._since + PAUSE - anyio.current_time()))
            self._since = anyio.current_time()

    async def aclose(self) -> None:
        await self._inner.aclose()

    def __aiter__(self) -> _Incoming:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> _Incoming:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class _Outgoing:
    """The stream of our messages."""

    def __init__(self, inner: Any, gauge: _Incoming) -> None:
        self._inner = inner
        self._gauge = gauge

    async def send(self, item: SessionMessage) -> None:
        await self._inner.send(item)
        if isinstance(item.message, types.JSONRPCResponse | types.JSONRPCError):
            self._gauge.unanswered -= 1

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> _Outgoing:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def _bounded(item: SessionMessage) -> SessionMessage:
    """Return a message, or in place of one with too many values an error or a notification without any."""
    message = item.message
    if isinstance(message, types.JSONRPCResponse):
        if _has_many({key: value for key, value in message.result.items() if key != "structuredContent"}):
            error = types.ErrorData(code=types.INTERNAL_ERROR, message=f"it sent more than {VALUES:,} values at once")
            return SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=message.id, error=error), item.metadata)
        _adapt_tools(message.result)
    elif not isinstance(message, types.JSONRPCError) and message.params is not None and _has_many(message.params):
        return SessionMessage(message.model_copy(update={"params": {}}), item.metadata)
    return item


def _has_many(value: Any) -> bool:
    """Return whether a message has more values than it may have."""
    left, found = [value], 0
    while left and found <= VALUES:
        node = left.pop()
        if isinstance(node, dict | list):
            inner = cast("Any", node.values() if isinstance(node, dict) else node)
            found += len(inner)
            if found <= VALUES:
                left.extend(inner)
    return found > VALUES


def _adapt_tools(result: dict[str, Any]) -> None:
    """Change what the SDK does with the schemas in a list of tools.

    Schemas of results are deleted: checking one may take for ever (`pattern`), and would hold up all threads. For a
    schema of arguments that no call can follow, the SDK would refuse the whole list, and not only that tool.
    """
    tools = result.get("tools")
    for tool in cast("list[Any]", tools) if isinstance(tools, list) else ():
        if isinstance(tool, dict):
            known = cast("dict[str, Any]", tool)
            known.pop("outputSchema", None)
            why = fault(known.get("inputSchema"))
            known["inputSchema"] = {"type": "object", **({FAULT: why} if why else known["inputSchema"])}
