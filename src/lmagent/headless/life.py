"""Life: rows at the end of standard error with the current activity of a single task, between other output."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TextIO

import anyio
from rich.cells import cell_len

from lmagent.core import events as ev
from lmagent.core.ports import Clock
from lmagent.core.view import ToolBlock, View, reduce
from lmagent.terminal.rich_style import clipped
from lmagent.terminal.status import FRAME, activity
from lmagent.terminal.style import columns
from lmagent.tools.sanitize import one_line


class ActivityLine:
    """The line, and the text above it."""

    def __init__(self, err: TextIO, clock: Clock) -> None:
        self.above: Callable[[], Sequence[str]] = tuple
        self._clock = clock
        self._rows = LiveRows(err, lambda: columns(err))
        self._view = View()
        self._since = clock.monotonic()
        self._paused = False

    def see(self, event: ev.Event) -> None:
        before = self._view.state, bool(self._view.draft), self._running()
        self._view = reduce(self._view, event)
        if (self._view.state, bool(self._view.draft), self._running()) != before:
            self._since = self._clock.monotonic()

    def erase(self) -> None:
        self._rows.erase()

    def pause(self, paused: bool) -> None:
        """Leave the terminal to a question, or take it back."""
        self._paused = paused
        self.erase()

    async def run(self) -> None:
        try:
            while True:
                self._draw()
                await anyio.sleep(FRAME)
        finally:
            self.erase()

    def _draw(self) -> None:
        if self._paused or self._view.state == "idle":
            self.erase()
            return
        line = activity(self._view, self._clock.monotonic() - self._since, self._running())
        if speed := self._view.pace.write_per_s:
            line = f"{line} · {round(speed, 1):g} tokens/s"
        self._rows.draw((*self.above(), f"{line} · Ctrl+C stops"))

    def _running(self) -> str:
        running = [block for block in self._view.blocks if isinstance(block, ToolBlock) and block.status == "running"]
        return one_line(running[-1].summary, 60) if running else ""


class LiveRows:
    """Rows that are redrawn in place, and erased before anything else is printed."""

    def __init__(self, out: TextIO, width: Callable[[], int]) -> None:
        self._out = out
        self._width = width
        self._drawn: list[str] = []

    def draw(self, lines: Sequence[str]) -> None:
        """Replace the rows by these lines, each cut to a row."""
        rows = [clipped(line, self._width()) for line in lines]
        if rows != self._drawn:
            self._out.write(self._erasure() + "\n".join(f"\x1b[2m{row}\x1b[0m" for row in rows))
            self._out.flush()
            self._drawn = rows

    def erase(self) -> None:
        if self._drawn:
            self._out.write(self._erasure())
            self._out.flush()
            self._drawn = []

    def _erasure(self) -> str:
        # A terminal that was made narrower since has broken the rows, and each takes several now.
        taken = sum(max(1, -(-cell_len(row) // max(1, self._width()))) for row in self._drawn)
        # Row by row: tmux keeps rows in its history that are cleared from the first row to the end of a screen.
        return "\r" + "\x1b[1A".join(["\x1b[2K"] * taken) if self._drawn else ""
