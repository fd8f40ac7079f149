"""Plurals: a number with its noun, for users and for the model."""

from __future__ import annotations


def plural(count: int, noun: str, many: str = "") -> str:
    """Return the number with the noun in the right form: "1 line", "2,000 lines".

    Args:
        count: how many.
        noun: the word for one.
        many: the word for several, if it is not the noun with an s.
    """
    return f"{count:,} {noun if count == 1 else many or noun + 's'}"
