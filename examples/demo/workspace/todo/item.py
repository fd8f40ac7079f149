"""One thing to do."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date


@dataclass(frozen=True)
class Item:
    """Something to do, until a day or at any time."""

    text: str
    due: date | None = None
    done: bool = False

    def finish(self) -> Item:
        """The same item, done."""
        return replace(self, done=True)

    def is_late(self, today: date) -> bool:
        """Whether its day has passed and it is not done."""
        return not self.done and self.due is not None and self.due < today
