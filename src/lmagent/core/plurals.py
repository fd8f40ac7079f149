"""Plurals: a number with its noun, and how long ago something was."""

from __future__ import annotations


def plural(count: int, noun: str, many: str = "") -> str:
    """Return the number with the noun in the right form: "1 line", "2,000 lines".

    Args:
        count: how many.
        noun: the word for one.
        many: the word for several, if it is not the noun with an s.
    """
    return f"{count:,} {noun if count == 1 else many or noun + 's'}"


_UNITS = ((86400, "d"), (3600, "h"), (60, "min"))


def age(seconds: float) -> str:
    """Format seconds in the largest unit that fits: `3 d`, `5 h`, `12 min`, or `now` below a minute."""
    return next((f"{seconds // size:.0f} {unit}" for size, unit in _UNITS if seconds >= size), "now")
