"""The tools memory_search and memory. What they do is imported when they are called."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from lmagent.core.tool import Tool, ToolContext, ToolOutput

if TYPE_CHECKING:
    from lmagent.memory.memory import Memories

TOP = 5

Operation = Literal["store", "search", "reflect", "learn"]


class MemorySearch(Struct, frozen=True):
    query: str
    top_k: int = TOP


class MemoryArgs(Struct, frozen=True):
    operation: Operation
    content: str
    metadata: dict[str, Any] | str | None = None


class LastInput(Struct, frozen=True):
    """The user's last message of a session: its place and its text."""

    place: str
    text: str


def memory_tools(memories: Callable[[], Memories], last_input: Callable[[str], LastInput | None]) -> Iterator[Tool]:
    """Yield the tools. The gate takes them for reading tools: they change only lmagent's own notes, which `undo` of
    the memory brings back, and what the model stores is never an instruction."""

    async def search(arguments: MemorySearch, context: ToolContext) -> ToolOutput:
        from lmagent.memory import calls

        return await calls.search(memories(), arguments.query, arguments.top_k, context.session)

    async def memory(arguments: MemoryArgs, context: ToolContext) -> ToolOutput:
        from lmagent.memory import calls

        if arguments.operation == "search":
            return await calls.search(memories(), arguments.content, TOP, context.session)
        last = last_input(context.session) if context.session else None
        return await calls.store(memories(), arguments, last, context.session)

    yield Tool(
        name="memory_search",
        description="Search facts and messages of earlier sessions.",
        arguments=MemorySearch,
        effect="read",
        run=search,
        deferred=True,
        unlisted=("top_k",),
        renames={"k": "top_k", "limit": "top_k", "max_results": "top_k"},
    )
    yield Tool(
        name="memory",
        description="operation: store (a fact for later sessions), learn (mistake → correction), reflect.",
        arguments=MemoryArgs,
        effect="read",
        run=memory,
        replay_safe=True,  # the same text is one entry
        deferred=True,
        unlisted=("metadata",),
        renames={"text": "content", "query": "content", "action": "operation"},
        summary=lambda arguments: f"memory {arguments.operation}: {' '.join(arguments.content.split())[:80]}",
    )
