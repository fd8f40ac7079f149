"""glob: finds files by a pattern of their paths."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated

from msgspec import Meta, Struct

from lmagent.core.errors import ToolError
from lmagent.core.plurals import plural
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
    deadline = time.monotonic() + BUDGET
    pattern = "/".join(paths.parse(text, ctx.workspace))
    if not pattern:
        raise ToolError("glob needs a pattern such as **/*.py.", data={"code": "pattern"})
    with Beneath(ctx.workspace) as files:
        search = _Search(files, text.endswith("/"), deadline, ctx.hidden)
        found = search.run(Pattern(pattern), fixed_start(pattern))
        notes, kept_back = search.notes(), withheld(search.withheld)
        if not found and "/" not in pattern and (deeper := search.run(Pattern(f"**/{pattern}"), ".")):
            notes.append(f"**/{one_line(pattern)} would match {len(deeper)} in deeper directories.")
    if not found:
        facts = {"count": 0, "truncated": search.late}
        return ToolOutput(" ".join([f"Nothing matches {one_line(text)}.", *notes, kept_back]).rstrip(), facts)
    told = [*(notes[:1] if search.late else []), *([f"({kept_back})"] if kept_back else [])]
    return paged(lambda room: _page(found, room, told, late=search.late))


def _page(found: list[str], room: int, told: list[str], *, late: bool) -> ToolOutput:
    rows = fitting([one_line(path, 1000) for path in found], room - _REST - size(told))
    rest = len(found) - len(rows)
    if rest:
        rows.append(f"… and {rest} more; narrow the pattern to see them")
    return ToolOutput("\n".join([*rows, *told]), {"count": len(found), "truncated": rest > 0 or late})


class _Search:
    """Walks that share a time limit; `late` is set when it was reached."""

    def __init__(self, files: Beneath, directories: bool, deadline: float, hidden: Callable[[str], bool]) -> None:
        self.late = False
        self.withheld = 0
        self._hidden = hidden
        self._files, self._directories, self._deadline = files, directories, deadline
        self._ignored = self._unreadable = 0

    def run(self, pattern: Pattern, start: str) -> list[str]:
        """Return the paths beneath `start` that match, in order; an empty list if the directory does not exist."""
        walk, found = Walk(self._files, start, enter=pattern.may_hold, hidden=self._hidden), list[str]()
        try:
            for entry in walk:
                if (entry.kind == "dir") == self._directories and pattern.matches(entry.path):
                    found.append(entry.path)
                if time.monotonic() > self._deadline:
                    self.late = True
                    break
        except ToolError as error:
            if error.data.get("code") not in ("missing", "kind"):
                raise
        self._ignored, self._unreadable = walk.ignored, walk.unreadable
        self.withheld = max(self.withheld, walk.withheld)
        return found

    def notes(self) -> list[str]:
        notes = list[str]()
        if self.late:
            notes.append(f"(Stopped after {BUDGET:.0f} s: there may be more. Name a directory.)")
        if self._ignored:
            left = plural(self._ignored, "entry", "entries")
            notes.append(f"{left} left out by .gitignore; name the directory to look into it.")
        if self._unreadable:
            notes.append(f"{plural(self._unreadable, 'directory', 'directories')} could not be read.")
        return notes


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
