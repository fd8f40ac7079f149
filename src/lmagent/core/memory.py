"""What long-term memory is made of: items, the hits of a search, and the port of the index that finds them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct


class MemoryItem(Struct, frozen=True):
    """A text that can be found again.

    Attributes:
        id: unique in its index.
        ts: Unix time; 0 if it is not known.
        session: the conversation it belongs to. Items of a session are neighbours in the order of their times; an item
            without a session has no neighbours.
        speaker: the author.
    """

    id: str
    text: str
    ts: float = 0.0
    session: str = ""
    speaker: str = ""


class Hit(MemoryItem, frozen=True):
    """An item that a search found; a higher `score` is better, within this search only."""

    score: float = 0.0


class MemoryIndex(Protocol):
    """Finds items by their text. It is no truth: it can be deleted, and filled again from the files and logs.

    Each call blocks until it is done, so event loops call it in a thread. Each may raise StoreError.
    """

    def index(self, items: Iterable[MemoryItem]) -> None:
        """Add items, or replace those with the same id. The next search finds them."""
        ...

    def remove(self, ids: Iterable[str]) -> int:
        """Remove items and return how many of the ids existed."""
        ...

    def purge(self, ids: Iterable[str]) -> int:
        """Remove items so that no byte of their text is left on the disk, and return how many of the ids existed."""
        ...

    def search(
        self, query: str, k: int, *, now: float | None = None, since: float | None = None, until: float | None = None
    ) -> list[Hit]:
        """Return up to `k` items, the best first. The order of equal scores is fixed. A query of any text is valid.

        Args:
            query: words or a question.
            k: how many.
            now: the Unix time of the question: of equally good items, the nearest to it comes first.
            since: only items from this Unix time on.
            until: only items up to this Unix time.
        """
        ...

    def around(self, ids: Iterable[str], span: int = 1) -> Mapping[str, Sequence[MemoryItem]]:
        """Return, for each id that exists, its item amid up to `span` neighbours on each side, in order."""
        ...

    def count(self) -> int:
        """Return the number of items."""
        ...

    def close(self) -> None:
        """Release the index."""
        ...
