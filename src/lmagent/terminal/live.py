"""Live: rows at the end of a terminal that are drawn anew in place, and erased before anything else is printed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TextIO

from lmagent.terminal.style import clipped, rows_of


class LiveRows:
    """The rows.

    Args:
        out: the terminal.
        width: asks for its width in columns.
    """

    def __init__(self, out: TextIO, width: Callable[[], int]) -> None:
        self._out = out
        self._width = width
        self._drawn: list[str] = []

    def draw(self, lines: Sequence[str]) -> None:
        """Show these lines, each cut to a row, in the place of those before."""
        rows = [clipped(line, self._width()) for line in lines]
        if rows != self._drawn:
            self._out.write(self._erasure() + "\n".join(f"\x1b[2m{row}\x1b[0m" for row in rows))
            self._out.flush()
            self._drawn = rows

    def erase(self) -> None:
        """Leave nothing of them."""
        if self._drawn:
            self._out.write(self._erasure())
            self._out.flush()
            self._drawn = []

    def _erasure(self) -> str:
        # A terminal that was made narrower since has broken the rows, and each takes several now.
        taken = sum(rows_of(row, self._width()) for row in self._drawn)
        # Row by row: tmux keeps in its history what is cleared to the end of a screen from its first row on.
        return "\r" + "\x1b[1A".join(["\x1b[2K"] * taken) if self._drawn else ""
