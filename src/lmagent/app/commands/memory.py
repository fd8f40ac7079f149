"""The slash command /memory."""

from __future__ import annotations

from collections.abc import Iterator

import anyio.to_thread

from lmagent.app.reflecting import reflect
from lmagent.app.registry import SlashCommand
from lmagent.app.slash import FACTS, SlashContext, SlashResult
from lmagent.core.errors import ConfigError
from lmagent.memory.folder import live
from lmagent.memory.memory import Memories
from lmagent.memory.opening import open_memories
from lmagent.memory.show import entry_line, hits_text, operation_text, refused_line, report_text, why_text

USAGE = "[QUESTION|list|add TEXT|why|pin|unpin|forget ID|undo|refused|reflect]"
BUDGET = 2000  # tokens of hits that are shown


def commands() -> Iterator[SlashCommand]:
    yield SlashCommand("memory", USAGE, "search, show and change memories", _memory, FACTS, beside=True)


async def _memory(context: SlashContext, line: str) -> SlashResult:
    verb, _, rest = line.strip().partition(" ")
    if verb == "reflect" and not rest:
        return SlashResult(report_text(await reflect(context.host)))
    host = context.host
    memories = open_memories(host.workspace, host.settings, host.clock)
    try:
        return SlashResult(await anyio.to_thread.run_sync(_done, memories, verb, rest.strip(), line.strip()))
    finally:
        memories.close()


def _done(memories: Memories, verb: str, rest: str, line: str) -> str:
    """Carry out a command; any other line is searched for."""
    workspace = memories.scopes["workspace"]
    match verb:
        case "" | "list" if not rest:
            rows = list[str]()
            for memory in memories.scopes.values():
                rows += [entry_line(entry) for entry in live(memory.entries())] + memory.folder.problems
            return "\n".join(rows) or "nothing is remembered yet: /memory add TEXT, or tell the agent to remember it"
        case "undo" if not rest:
            done = memories.undo()
            return operation_text(done[1]) if done else "there is nothing to undo"
        case "refused" if not rest:
            rows = [refused_line(row) for memory in memories.scopes.values() for row in memory.folder.refused()[-50:]]
            return "\n".join(rows) or "nothing was refused"
        case "add":
            if not rest:
                raise ConfigError("there is no text to remember", fix="/memory add TEXT")
            return f"remembered as {workspace.store(rest, by='user').id}"
        case "why" | "pin" | "unpin" | "forget" if len(rest.split()) == 1:
            memory, entry = memories.find(rest)
            if verb == "why":
                return why_text(memory, entry, memories.event_text)
            if verb == "forget":
                memory.forget(entry.id)
                return f"forgot {entry.id}: {entry.text}; /memory undo brings it back"
            moved = memory.pin(entry.id, pinned=verb == "pin")
            return f"{moved.id} is in {moved.file}"
        case _:
            found = memories.search(line, 8)
            return hits_text(found, BUDGET) or f"nothing is remembered that matches {line!r}"
