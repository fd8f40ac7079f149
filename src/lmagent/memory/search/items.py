"""Items as callers give them: Structs, or dicts with some of their fields."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec.structs import asdict

from lmagent.core.decoding import convert
from lmagent.core.memory import MemoryItem

Loose = MemoryItem | Mapping[str, Any]
"""An item, or a mapping with `id` and `text`, and perhaps `ts` (a number or an ISO 8601 text), `session`, `speaker`."""


def as_item(given: Loose) -> MemoryItem:
    """Return the item with text that SQLite can store. Raise ValueError if it has no id or no readable time."""
    fields = asdict(given) if isinstance(given, MemoryItem) else {k: v for k, v in given.items() if v is not None}
    if unknown := fields.keys() - set(MemoryItem.__struct_fields__):
        raise ValueError(f"an item has no field {sorted(unknown)[0]!r}, only id, text, ts, session and speaker")
    # A lone surrogate is no text for SQLite.
    clean = {
        name: value.encode(errors="replace").decode() if isinstance(value, str) else value
        for name, value in fields.items()
    }
    try:
        item = convert({**clean, "ts": unix_time(fields.get("ts"))}, MemoryItem)
    except msgspec.ValidationError as wrong:
        raise ValueError(f"an item has an id and a text: {wrong}") from None
    if not item.id:
        raise ValueError("an item needs an id that is not empty")
    return item


def unix_time(given: Any) -> float:
    """Return Unix seconds of a number or an ISO 8601 text (UTC unless it says otherwise); 0 for None or no text."""
    try:
        if isinstance(given, str) and given:
            when = datetime.fromisoformat(given)
            return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
        seconds = float(given or 0)
    except (TypeError, ValueError, OverflowError):
        seconds = math.nan
    if not math.isfinite(seconds):
        raise ValueError(f"{given!r} is no time: give Unix seconds, or a text like 2026-11-27T16:30:00+01:00")
    return seconds
