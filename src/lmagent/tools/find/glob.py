"""glob: finds files by a pattern of their paths."""

from __future__ import annotations

import time
from typing import Annotated

from msgspec import Meta, Struct

from lmagent.core.errors import ToolError
from lmagent.core.tool import Tool, ToolContext, ToolOutput
from lmagent.tools import paths
from lmagent.tools.beneath import Beneath
from lmagent.tools.find.pattern import Pattern, fixed_start
from lmagent.tools.page import fitting, paged, size
from lmagent.tools.read import REMARKS, adapting
from lmagent.tools.sanitize import one_line
from lmagent.tools.walk import Walk, withheld

_REST = 80
"""Bytes that the line about further paths may take."""

BUDGET = 5.0
"""Seconds of walking."""


class Glob(Struct, frozen=True):
    """Arguments of glob."""

    pattern: Annotated[str, Meta(description="such as src/**/*.py")]


async def _run(arguments: Glob, ctx: ToolContext) -> ToolOutput:
    from anyio import to_thread

    return await to_thread.run_sync(_find, arguments.pattern, ctx, abandon_on_cancel=True)


def _find(text: str, ctx: ToolContext) -> ToolOutput:
    deadline, late = time.monotonic() + BUDGET, False
    name = "/".join(paths.parse(text, ctx.workspace))
    if not name:
        raise ToolError("glob needs a pattern such as **/*.py.", data={"code": "pattern"})
    pattern, found = Pattern(name), list[str]()
    with Beneath(ctx.workspace) as files:
        walk = Walk(files, fixed_start(name), enter=pattern.may_hold, hidden=ctx.hidden)
        try:
            for entry in walk:
                if (entry.kind == "dir") == text.endswith("/") and pattern.matches(entry.path):
                    found.append(entry.path)
                if late := time.monotonic() > deadline:
                    break
        except ToolError as error:
            if error.data.get("code") not in ("missing", "kind"):
                raise
    stopped = [f"(Stopped after {BUDGET:.0f} s: there may be more. Name a directory.)"] if late else []
    if found:
        told = [*stopped, *([f"({withheld(walk.withheld)})"] if walk.withheld else [])]
        return paged(lambda room: _page(found, room, told, late=late))
    notes = [*stopped, *walk.notes]
    if "/" not in name:
        notes.append(f"**/{one_line(name)} looks in deeper directories too.")
    return ToolOutput(" ".join([f"Nothing matches {one_line(text)}.", *notes]), {"count": 0, "truncated": late})


def _page(found: list[str], room: int, told: list[str], *, late: bool) -> ToolOutput:
    rows = fitting([one_line(path, 1000) for path in found], room - _REST - size(told))
    rest = len(found) - len(rows)
    if rest:
        rows.append(f"… and {rest} more; narrow the pattern to see them")
    return ToolOutput("\n".join([*rows, *told]), {"count": len(found), "truncated": rest > 0 or late})


TOOL = Tool(
    name="glob",
    description="Find files by a pattern of their path. Skips what .gitignore names.",
    arguments=Glob,
    effect="read",
    run=_run,
    replay_safe=True,
    aliases=("find_files", "glob_files", "file_search", "find"),
    renames={**dict.fromkeys(("query", "glob_pattern", "glob", "name"), "pattern"), **REMARKS},
    implied={"recursive": (True,)},
    adapt=adapting("glob"),
    summary=lambda arguments: f"glob {one_line(arguments.pattern)}",
    targets=lambda arguments: (paths.lexical(fixed_start(arguments.pattern)),),
)
