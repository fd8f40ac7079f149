"""The size of a page of output. The engine may give a tool less room; then the tool shows less, and says so."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lmagent.core.tool import ToolOutput

BYTES = 50_000
"""Bytes of a page at most."""

LINES = 2000
"""Lines of a page at most."""


def paged(render: Callable[[int], ToolOutput]) -> ToolOutput:
    """Return the output of `render` for a whole page, with the means to render a smaller one."""
    output = render(BYTES)
    return ToolOutput(output.content, output.data, output.full, output.file, render)


def size(rows: Sequence[str]) -> int:
    return sum(len(row) + 1 if row.isascii() else len(row.encode("utf-8", "replace")) + 1 for row in rows)


def fitting(rows: Sequence[str], room: int) -> list[str]:
    """Return the first rows that fit, at least one."""
    taken, used = list[str](), 0
    for row in rows[:LINES]:
        used += size([row])
        if taken and used > room:
            break
        taken.append(row)
    return taken
