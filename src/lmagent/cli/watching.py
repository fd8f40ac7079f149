"""`lmagent sessions watch`: a live tree of a session, its sub-agents, tasks and budgets."""

from __future__ import annotations

import shutil
import sys
from typing import TextIO

from lmagent.app.watching import Tree
from lmagent.store.jsonl import JsonlStore
from lmagent.tools.sanitize import visible


async def watch(store: JsonlStore, session: str, out: TextIO | None = None) -> None:
    """Show the session until it is idle; one that has ended is shown once."""
    tree = Tree(store, session)
    shown = _Block(out or sys.stdout)
    shown.show(tree.lines())
    async for _ in tree.changes():
        shown.show(tree.lines())
    shown.show(tree.lines())


class _Block:
    """A block of lines that is redrawn on a terminal; in a pipe, lines are printed as they change."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._last: list[str] = []

    def show(self, lines: list[str]) -> None:
        lines = [visible(line) for line in lines]
        if lines == self._last:
            return
        if self._out.isatty():
            size = shutil.get_terminal_size()
            lines = [line[: size.columns - 1] for line in lines[-(size.lines - 1) :]]
            back = f"\x1b[{len(self._last)}F\x1b[J" if self._last else ""
            self._out.write(back + "".join(f"{line}\n" for line in lines))
        else:
            self._out.writelines(f"{line}\n" for line in lines if line not in self._last)
        self._out.flush()
        self._last = lines
