"""An item as one line of text: `[x] 2026-01-31 buy milk`."""

from __future__ import annotations

import re
from datetime import date

from todo.item import Item

LINE = re.compile(r"\[(?P<done>[ x])\] (?:(?P<due>\d{4}-\d{2}-\d{2}) )?(?P<text>.+)")


class BadLineError(ValueError):
    """A line of the file that is no item."""


def write(item: Item) -> str:
    """The line of an item."""
    mark = "x" if item.done else " "
    due = f"{item.due.isoformat()} " if item.due else ""
    return f"[{mark}] {due}{item.text}"


def parse(line: str) -> Item:
    """The item of a line."""
    match = LINE.fullmatch(line.strip())
    if match is None:
        raise BadLineError(f"not a to-do line: {line!r}")
    due = date.fromisoformat(match["due"]) if match["due"] else None
    return Item(match["text"], due, match["done"] == "x")
