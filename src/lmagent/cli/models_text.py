"""Models as lines and as JSON. A key is in neither."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lmagent.modelserver.library import Details
from lmagent.modelserver.machine import Memory
from lmagent.tools.sanitize import one_line


def amount(count: int) -> str:
    if count >= 10_000_000_000:
        return f"{count / 1e9:.0f} GB"
    if count >= 100_000_000:
        return f"{count / 1e9:.1f} GB"
    return f"{count / 1e6:.1f} MB"


def fits(details: Details, memory: Memory) -> bool | None:
    """Whether a model fits into the memory that is free now; None if unknown."""
    from lmagent.modelserver.memory import usable

    if not details.entry.needed or not memory.total:
        return None
    return details.entry.needed <= usable(memory.free)


def json_row(details: Details, memory: Memory) -> dict[str, Any]:
    entry, facts = details.entry, details.facts
    return {
        "name": entry.name,
        "engine": entry.engine,
        "source": entry.source,
        "kind": facts.kind if facts is not None else "",
        "path": str(entry.path) if entry.path != Path() else "",
        "size": entry.size,
        "needed": entry.needed,
        "fits": fits(details, memory),
        "quantisation": facts.quantisation if facts is not None else "",
        "parameters": facts.parameters if facts is not None else 0,
        "context": entry.settings.context,
        "url": entry.url,
        "upstream": entry.upstream,
        "broken": entry.broken,
        "fix": details.fix,
    }


def rows(there: Sequence[Details], memory: Memory) -> list[str]:
    """Format the models as lines of a table; a broken one has its reason and its fix below it."""
    width = min(60, max((len(details.entry.name) for details in there), default=0))
    lines: list[str] = []
    for details in there:
        entry = details.entry
        if entry.broken:
            lines.append(f"✗ {entry.name:<{width}}  {one_line(entry.broken, 400)}")
            if details.fix:
                lines.append(f"  → {one_line(details.fix, 400)}")
            continue
        lines.append(f"  {entry.name:<{width}}  {_about(details, memory)}")
    return lines


def _about(details: Details, memory: Memory) -> str:
    entry, facts = details.entry, details.facts
    if entry.engine == "upstream":
        return f"on {one_line(entry.url)} as {one_line(entry.upstream)}"
    words = [f"{amount(entry.size):>8}", f"needs {amount(entry.needed)}"]
    if fits(details, memory) is False:
        words[-1] += f" (only {amount(memory.free)} are free)"
    if facts is not None:
        words += [facts.quantisation, f"{entry.settings.context:,} tokens"]
        words += [facts.kind] if facts.kind != "chat" else []
    else:
        words.append("transformers")
    words += [entry.source] if entry.source != "library" else []
    return "  ".join(word for word in words if word)
