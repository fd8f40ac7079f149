"""Redaction at the event boundary: a known secret never reaches the log, a watcher or the model."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from lmagent.core.events import DurableEvent, decode, encode

MASK = "[redacted]"
MIN_LENGTH = 8
"""Shorter values are placeholders ("x") and would mask ordinary words."""

PLACEHOLDERS = frozenset({"lm-studio", "not-needed", "no-key-required", "EMPTY"})


class Redactor:
    """Replaces known secrets in events.

    Args:
        secrets: the values; placeholders that local servers accept as a key are left alone.
    """

    def __init__(self, secrets: Sequence[str]) -> None:
        real = {value for value in secrets if len(value) >= MIN_LENGTH and value not in PLACEHOLDERS}
        # As they stand inside a JSON string, quotes left off; the longest first, since one may contain another.
        self._needles = sorted((msgspec.json.encode(value)[1:-1] for value in real), key=len, reverse=True)

    def event(self, event: DurableEvent) -> DurableEvent:
        """The event without secrets; the same object when there are none in it."""
        if not self._needles:
            return event
        line = encode(event)
        if not any(needle in line for needle in self._needles):
            return event
        for needle in self._needles:
            line = line.replace(needle, MASK.encode())
        return decode(line)
