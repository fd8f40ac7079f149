"""FakeMemoryIndex: search by shared words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from lmagent.core.ports import MemoryHit


class FakeMemoryIndex:
    """Remembered texts; a match is the share of the query's words that a text contains."""

    def __init__(self) -> None:
        self._texts: dict[str, tuple[str, str]] = {}

    def put(self, id: str, text: str, kind: Literal["fact", "lesson", "session"]) -> None:
        """See `lmagent.core.ports.MemoryIndex`."""
        self._texts[id] = (text, kind)

    def search(self, query: str, limit: int = 5) -> Sequence[MemoryHit]:
        """See `lmagent.core.ports.MemoryIndex`."""
        wanted = _words(query)
        hits = [
            MemoryHit(id, text, len(wanted & _words(text)) / len(wanted))
            for id, (text, _) in self._texts.items()
            if wanted & _words(text)
        ]
        return sorted(hits, key=lambda hit: -hit.score)[:limit]

    def forget(self, id: str) -> bool:
        """See `lmagent.core.ports.MemoryIndex`."""
        return self._texts.pop(id, None) is not None


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.casefold()))
