"""Calls: what the tools memory_search and memory do."""

from __future__ import annotations

from typing import Any, get_args

import anyio.to_thread

from lmagent.core.errors import StoreError, ToolError
from lmagent.core.tool import ToolOutput
from lmagent.memory.entries import FactKind
from lmagent.memory.memory import Memories, MemoryRefused, Scope
from lmagent.memory.reflect import asks_to_remember, is_from
from lmagent.memory.show import hits_text
from lmagent.memory.tools import LastInput, MemoryArgs

MOST = 20
BUDGET = 1500  # tokens of the hits


async def search(memories: Memories, query: str, top: int, session: str) -> ToolOutput:
    """Search both scopes; the messages of `session` are left out, since they are in its prompt."""
    if not query.strip():
        raise ToolError("memory_search needs words to look for")
    return await anyio.to_thread.run_sync(_found, memories, query, max(1, min(top, MOST)), session)


async def store(memories: Memories, arguments: MemoryArgs, last: LastInput | None, session: str) -> ToolOutput:
    """Store a text of the model. It is pinned only if the user asked for it, in words that have it."""
    return await anyio.to_thread.run_sync(_stored, memories, arguments, last, session)


def _found(memories: Memories, query: str, top: int, session: str) -> ToolOutput:
    found = memories.search(query, top, without=session)
    return ToolOutput(hits_text(found, BUDGET) or f"Nothing is remembered that matches {query!r}.")


def _stored(memories: Memories, arguments: MemoryArgs, last: LastInput | None, session: str) -> ToolOutput:
    options, extra = _options(arguments.metadata)
    scope: Scope = "user" if options.get("scope") == "user" else "workspace"
    kinds = {"learn": "learning", "reflect": "reflection"}
    kind = kinds.get(arguments.operation) or options.get("kind", "fact")
    asked = last is not None and asks_to_remember(last.text) and is_from(arguments.content, last.text)
    # What the user did not say is in no prompt of later sessions.
    text = f"{arguments.content} ({extra})" if extra and not asked else arguments.content
    evidence = (last.place,) if last is not None else ()
    earlier = ""
    if arguments.operation == "reflect":
        earlier = hits_text(memories.search(text, 3, without=session), BUDGET // 3)
    try:
        entry = memories.scopes[scope].store(text, by="model", kind=kind, evidence=evidence, pinned=asked)  # pyright: ignore[reportArgumentType]
    except MemoryRefused as refused:
        raise ToolError(f"{refused.message}. {refused.fix}.") from None
    except StoreError as failure:
        raise ToolError(f"It could not be stored: {failure.message}") from None
    where = "each new session's prompt" if entry.is_pinned else entry.file
    related = f"\nRelated:\n{earlier}" if earlier else ""
    return ToolOutput(f"Remembered as {entry.id} ({scope}, in {where}).{related}", {"memory": entry.id, "scope": scope})


def _options(metadata: dict[str, Any] | str | None) -> tuple[dict[str, str], str]:
    """Return the known options, and the rest as text, so that nothing is dropped."""
    if isinstance(metadata, str):
        return {}, metadata.strip()
    given = {str(key).lower(): str(value) for key, value in (metadata or {}).items() if value not in (None, "")}
    kind = given.pop("kind", "") or given.pop("type", "")
    options = {"scope": given.pop("scope", "")}
    if kind in get_args(FactKind):
        options["kind"] = kind
    elif kind:
        given["kind"] = kind
    return options, ", ".join(f"{key}: {value}" for key, value in given.items())
