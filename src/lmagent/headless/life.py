"""Life: a line on standard error with the current activity of a single task, between other output."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TextIO

import anyio

from lmagent.core import events as ev
from lmagent.core.ports import Clock
from lmagent.core.view import ToolBlock, View, reduce
from lmagent.terminal.live import LiveRows
from lmagent.terminal.status import FRAME, activity
from lmagent.terminal.tally import TurnTally
from lmagent.tools.sanitize import one_line


class ActivityLine:
    """The line, and the text above it."""

    def __init__(self, err: TextIO, clock: Clock) -> None:
        self.above: Callable[[], Sequence[str]] = tuple
        self._clock = clock
        self._rows = LiveRows(err, lambda: columns(err))
        self._view = View()
        self._tally = TurnTally()
        self._since = clock.monotonic()
        self._paused = False

    def see(self, event: ev.Event) -> None:
        before = self._view.state, bool(self._view.draft), self._running()
        self._view = reduce(self._view, event)
        self._tally.add(event)
        if (self._view.state, bool(self._view.draft), self._running()) != before:
            self._since = self._clock.monotonic()

    def figures(self, finished: ev.TurnFinished) -> str:
        return self._tally.line(finished)

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
        elapsed = self._clock.monotonic() - self._since
        line = activity(self._view, elapsed, self._running())
        if speed := self._view.pace.write_per_s:
            line = f"{line} · {speed:g} tokens/s"
        self._rows.draw((*self.above(), f"{line} · Ctrl+C stops"))

    def _running(self) -> str:
        running = [block for block in self._view.blocks if isinstance(block, ToolBlock) and block.status == "running"]
        return one_line(running[-1].summary, 60) if running else ""


def columns(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError):
        return 80
