"""Tables: rows below their headings."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from shutil import get_terminal_size

import click


def show_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table; on a terminal a wider row ends with an ellipsis."""
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    room = get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize
    for row in (headings, *rows):
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        click.echo(line if len(line) <= room else f"{line[: room - 1]}…")
