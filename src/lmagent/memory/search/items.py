"""Items as callers give them: Structs, or dicts with some of their fields."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from lmagent.core.memory import MemoryItem

Loose = MemoryItem | Mapping[str, Any]
"""An item, or a mapping with `id` and `text`, and perhaps `ts` (a number or an ISO 8601 text), `session`, `speaker`."""


def as_item(given: Loose) -> MemoryItem:
    """Return the item with text that SQLite can store. Raise ValueError if it has no id or no readable time."""
    if isinstance(given, MemoryItem):
        given = {"id": given.id, "text": given.text, "ts": given.ts, "session": given.session, "speaker": given.speaker}
    if unknown := given.keys() - set(MemoryItem.__struct_fields__):
        raise ValueError(f"an item has no field {sorted(unknown)[0]!r}, only id, text, ts, session and speaker")
    texts = {name: given.get(name) for name in ("id", "text", "session", "speaker")}
    for name, value in texts.items():
        if not (isinstance(value, str) or (value is None and name in ("session", "speaker"))):
            raise ValueError(f"the {name} of an item is a text, not {value!r}")
    if not texts["id"]:
        raise ValueError("an item needs an id that is not empty")
    # A lone surrogate is no text for SQLite.
    clean = {name: (value or "").encode("utf-8", "replace").decode() for name, value in texts.items()}
    return MemoryItem(**clean, ts=unix_time(given.get("ts")))


def unix_time(given: Any) -> float:
    """Return Unix seconds of a number or an ISO 8601 text (UTC unless it says otherwise); 0 for None or no text."""
    if given is None or given == "":
        return 0.0
    try:
        if isinstance(given, str):
            when = datetime.fromisoformat(given)
            return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
        seconds = float(given)
    except (TypeError, ValueError, OverflowError):
        seconds = math.nan
    if not math.isfinite(seconds):
        raise ValueError(f"{given!r} is no time: give Unix seconds, or a text like 2026-11-27T16:30:00+01:00")
    return seconds
