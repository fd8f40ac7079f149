"""What the tests of the index share."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from lmagent.memory import open_memory
from lmagent.memory.search.embedding import Embedder
from lmagent.memory.search.index import SqliteMemoryIndex

CONCEPTS = {
    "animal": ("dog", "puppy", "cat", "pet", "kitten"),
    "travel": ("trip", "journey", "train", "flight", "lisbon"),
    "food": ("pasta", "dinner", "soup", "meal", "cooking"),
}


class ConceptEmbedder:
    """Vectors by the concepts of words: texts that share no word are near if they share a concept."""

    def __init__(self, name: str = "concepts", width: int = 32) -> None:
        self.name = name
        self.width = width
        self.texts: list[str] = []

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        self.texts += texts
        return [self._vector(text.lower()) for text in texts]

    def _vector(self, text: str) -> list[float]:
        vector = [(byte - 128) / 2000 for byte in hashlib.sha512(text.encode()).digest()[: self.width]]
        for place, words in enumerate(CONCEPTS.values()):
            vector[place] += sum(word in text for word in words)
        return vector


def opened(path: Path, embedder: Embedder | str | None = None) -> tuple[SqliteMemoryIndex, list[str]]:
    """An index, and the list of its notices."""
    notices: list[str] = []
    return open_memory(path, embedder, on_notice=notices.append), notices


def said(*turns: str, session: str = "s", begin: int = 1) -> list[dict[str, object]]:
    """A conversation of `Speaker: text`; ids are session and number."""
    return [
        {
            "id": f"{session}{number}",
            "text": turn.partition(": ")[2],
            "speaker": turn.partition(": ")[0],
            "session": session,
            "ts": 1000.0 * begin + number,
        }
        for number, turn in enumerate(turns, 1)
    ]
