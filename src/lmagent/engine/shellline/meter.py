"""A bound on work that is counted, not timed: the same line gets the same answer on every machine."""

from __future__ import annotations

WORK = 60_000
"""Steps for a line and all that it runs in turn: a fifth of a second. 16 KB of ordinary text take some 10 000."""


class TooMuchWork(Exception):
    """The line takes more work than it is worth."""


class Meter:
    """Counts steps."""

    def __init__(self, limit: int = WORK) -> None:
        self.limit = limit
        self.spent = 0

    def spend(self, steps: int = 1) -> None:
        """Count steps that are about to be taken.

        Raises:
            TooMuchWork: they are too many.
        """
        self.spent += steps
        if self.spent > self.limit:
            self.spent = self.limit
            raise TooMuchWork
