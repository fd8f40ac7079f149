"""Live: rows at the end of a terminal that are redrawn in place, and erased before anything else is printed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TextIO

from lmagent.terminal.style import clipped, rows_of


class LiveRows:
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
        taken = sum(rows_of(row, self._width()) for row in self._drawn)
        # Row by row: tmux keeps rows in its history that are cleared from the first row to the end of a screen.
        return "\r" + "\x1b[1A".join(["\x1b[2K"] * taken) if self._drawn else ""
