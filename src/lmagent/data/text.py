"""Text: an answer of the worker as a compact table for the model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lmagent.tools.sanitize import one_line, printable

COLUMNS = 30
"""Columns that are shown; the names of the others are listed."""

ROOM = 1600
"""Characters of a row that are shown."""

NARROW = 60
"""Characters of a cell, if the row would be longer than its room."""

NULL = "NULL"


def drawn(answer: dict[str, Any]) -> str:
    """Return the answer: a line about the file, the table, and its notes."""
    columns: list[list[str]] = answer["columns"]
    rows: list[list[str | None]] = answer["rows"]
    head = f"[{one_line(answer['path'], 200)}: {_plain(answer['kind'])}; {_plain(answer['title'])}]"
    names = [" ".join(filter(None, (_cell(name), kind))) for name, kind in columns]
    cells = [[NULL if value is None else _cell(value) for value in row] for row in rows]
    count = len(names)
    if columns:
        widths = _widths(names, cells)
        if sum(widths) > ROOM or count > COLUMNS:
            cells = [[_short(value) for value in row] for row in cells]
            count = _fitting(_widths(names, cells))
    lines = [" | ".join(row[:count]) for row in (names, *cells)] if columns else []
    notes = list(answer["notes"])
    if count < len(names):
        left = ", ".join(name for name, _ in columns[count:])
        notes.append(
            f"{len(names) - count} columns are not shown: {one_line(left, 1000)}. Operation sql can select them"
        )
    return "\n".join((head, *lines, *(f"[{_plain(note)}]" for note in notes)))


def _widths(names: Sequence[str], cells: Sequence[Sequence[str]]) -> list[int]:
    return [max(len(name), *(len(row[at]) for row in cells), 0) for at, name in enumerate(names)]


def _fitting(widths: Sequence[int]) -> int:
    """Return how many of the first columns fit; one always does."""
    room = ROOM
    for at, width in enumerate(widths):
        room -= width + 3
        if at and (room < 0 or at == COLUMNS):
            return at
    return len(widths)


def _short(text: str) -> str:
    return text if len(text) <= NARROW else f"{text[: NARROW - 1]}…"


def _cell(text: str) -> str:
    """Return a value on one line; a text that is `NULL` is quoted."""
    plain = printable(text).replace("\n", "\\n").replace("\t", "\\t").replace("|", "\\|")
    return f'"{plain}"' if plain in (NULL, "") else plain


def _plain(text: str) -> str:
    return printable(text).replace("\n", " ")
