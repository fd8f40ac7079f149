"""recall: search the session's own record, the parts that compaction has cut included."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated

from msgspec import Meta, Struct

from lmagent.core.errors import ToolError
from lmagent.core.events import DurableEvent, MessageAdded, ToolFinished
from lmagent.core.tool import Tool, ToolContext, ToolOutput

HITS = 8
EXCERPT = 600
"""Characters shown around a hit."""

ReadEvents = Callable[[str], Iterable[DurableEvent]]
"""session -> its events, in order."""

_WORD = re.compile(r"\w+")


class Recall(Struct):
    """Arguments of recall."""

    query: Annotated[str, Meta(description="words to look for")]


def recall_tool(read_events: ReadEvents) -> Tool:
    """The tool, searching what `read_events` gives."""

    async def run(arguments: Recall, context: ToolContext) -> ToolOutput:
        words = {word.lower() for word in _WORD.findall(arguments.query)}
        if not words:
            raise ToolError("recall needs at least one word to look for")
        scored = [(_score(text, words), seq, who, text) for seq, who, text in _texts(read_events(context.session))]
        best = sorted((hit for hit in scored if hit[0] > 0), key=lambda hit: (-hit[0], -hit[1]))[:HITS]
        if not best:
            return ToolOutput(f"Nothing on record matches {arguments.query!r}.")
        rows = [f"#{seq} {who}: {_excerpt(text, words)}" for _, seq, who, text in sorted(best, key=lambda hit: hit[1])]
        return ToolOutput("\n\n".join(rows))

    return Tool(
        name="recall",
        description="Search this conversation's full record, earlier parts included.",
        arguments=Recall,
        effect="read",
        run=run,
    )


def _texts(events: Iterable[DurableEvent]) -> Iterator[tuple[int, str, str]]:
    for event in events:
        if isinstance(event, MessageAdded) and event.message.text and event.origin in ("input", "steer", "model"):
            yield event.seq, event.message.role, event.message.text
        elif isinstance(event, ToolFinished) and event.tool != "recall":
            yield event.seq, event.tool, event.content


def _score(text: str, words: set[str]) -> float:
    """How many of the words occur, and a little for how often."""
    lowered = text.lower()
    counts = [lowered.count(word) for word in words]
    return sum(1 + min(count, 5) / 50 for count in counts if count)


def _excerpt(text: str, words: set[str]) -> str:
    lowered = text.lower()
    at = min((lowered.find(word) for word in words if word in lowered), default=0)
    start = max(0, at - EXCERPT // 3)
    piece = text[start : start + EXCERPT]
    return f"{'…' if start else ''}{piece.strip()}{'…' if start + EXCERPT < len(text) else ''}"
