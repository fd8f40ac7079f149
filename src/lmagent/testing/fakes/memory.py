"""FakeMemoryIndex: an index in memory that counts common words, with the same rules as the real one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from lmagent.core.memory import Hit, MemoryItem


class FakeMemoryIndex:
    """Items in a dict. A hit's score is the number of words that it has in common with the query.

    Attributes:
        items: the items by their ids.
        purged: the ids of every purge, in order.
    """

    def __init__(self) -> None:
        self.items: dict[str, MemoryItem] = {}
        self.purged: list[str] = []

    def index(self, items: Iterable[MemoryItem]) -> None:
        self.items.update({item.id: item for item in items})

    def remove(self, ids: Iterable[str]) -> int:
        return sum(self.items.pop(id, None) is not None for id in ids)

    def purge(self, ids: Iterable[str]) -> int:
        wanted = list(ids)
        self.purged += wanted
        return self.remove(wanted)

    def search(
        self, query: str, k: int, *, now: float | None = None, since: float | None = None, until: float | None = None
    ) -> list[Hit]:
        asked = _words(query)
        hits = [
            Hit(item.id, item.text, item.ts, item.session, item.speaker, float(len(asked & _words(item.text))))
            for item in self.items.values()
            if (since is None or item.ts >= since) and (until is None or item.ts <= until)
        ]
        hits = [hit for hit in hits if hit.score]
        hits.sort(key=lambda hit: (-hit.score, -hit.ts if now is None else abs(hit.ts - now), hit.id))
        return hits[: max(k, 0)]

    def around(self, ids: Iterable[str], span: int = 1) -> Mapping[str, Sequence[MemoryItem]]:
        found: dict[str, Sequence[MemoryItem]] = {}
        for id in ids:
            if item := self.items.get(id):
                session = [other for other in self.items.values() if other.session == item.session]
                session.sort(key=lambda other: other.ts)
                place = session.index(item)
                found[id] = session[max(0, place - span) : place + span + 1] if item.session else [item]
        return found

    def count(self) -> int:
        return len(self.items)

    def close(self) -> None: ...


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.casefold()))
