"""Notes: texts that come from files or memories, for a note `<name>…</name>` in the conversation."""

from __future__ import annotations

from collections.abc import Sequence


def unclosing(text: str) -> str:
    """Return the text so that it cannot end the note that it is in."""
    return text.replace("</", "<\\/")


def fitting(rows: Sequence[str], room: int) -> list[str]:
    """Return the first rows that fit into so many characters with their line ends, and a row that counts the others."""
    shown = list[str]()
    for row in map(unclosing, rows):
        room -= len(row) + 1
        if room < 0:
            return [*shown, f"[… {len(rows) - len(shown)} more]"]
        shown.append(row)
    return shown
