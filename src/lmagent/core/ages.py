"""Ages: how long ago something was, for lists."""

from __future__ import annotations

_UNITS = ((86400, "d"), (3600, "h"), (60, "min"))


def age(seconds: float) -> str:
    """Format seconds in the largest unit that fits: `3 d`, `5 h`, `12 min`, or `now` below a minute."""
    return next((f"{seconds // size:.0f} {unit}" for size, unit in _UNITS if seconds >= size), "now")
