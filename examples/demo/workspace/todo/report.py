"""The list as a person wants to see it: late things first, done things last."""

from __future__ import annotations

from datetime import date

from todo.item import Item


def overview(items: list[Item], today: date) -> str:
    """The numbered list, one item a line, and a count."""
    order = sorted(enumerate(items, 1), key=lambda pair: (pair[1].done, pair[1].due or date.max))
    lines = [f"{number:3}. {_mark(item, today)} {item.text}{_due(item)}" for number, item in order]
    open_items = sum(not item.done for item in items)
    return "\n".join([*lines, f"{open_items} open, {len(items) - open_items} done", ""])


def _mark(item: Item, today: date) -> str:
    if item.done:
        return "✓"
    return "!" if item.is_late(today) else "·"


def _due(item: Item) -> str:
    return f" (due {item.due:%d %b %Y})" if item.due else ""
