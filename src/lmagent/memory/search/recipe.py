"""The recipe that joins words and vectors into one order. Pure; docs/memory.md says where its numbers are from.

Weighted sums, because reciprocal rank fusion of the same lists found less than BM25 alone.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Mapping

from msgspec import Struct

COSINE, WORDS = 0.6, 0.4
"""Shares of the two halves. Without vectors the words count alone."""

NEIGHBOUR = 0.2
"""How much of its neighbours' scores an item gets: an answer rarely repeats the words of its question."""

SESSION, SESSION_BEST = 0.3, 3
"""How much an item gets of the mean of its session's best items."""

SPEAKER, QUESTION = 0.1, 0.1
"""What an item gets if the query names its speaker, and loses if it is itself a question."""


class FoundItem(Struct, frozen=True):
    """An item as the recipe sees it; `before` and `after` are the numbers of its neighbours."""

    number: int
    session: str
    named: bool
    asks: bool
    before: int | None
    after: int | None


def base_scores(words: Mapping[int, float], cosines: Mapping[int, float] | None) -> dict[int, float]:
    """Return the weighted sum of the two halves for each number; `words` holds BM25 scores, the higher the better."""
    best = max(words.values(), default=0.0) or 1.0
    if cosines is None:
        return {number: score / best for number, score in words.items()}
    return {
        number: COSINE * cosines.get(number, 0.0) + WORDS * words.get(number, 0.0) / best
        for number in words.keys() | cosines.keys()
    }


def fuse(candidates: Mapping[int, FoundItem], base: Mapping[int, float]) -> dict[int, float]:
    """Return the score of each candidate."""
    scores: dict[int, float] = {}
    sessions: defaultdict[str, list[float]] = defaultdict(list)
    for number, item in candidates.items():
        score = base.get(number, 0.0)
        score += NEIGHBOUR * (base.get(item.before or 0, 0.0) + base.get(item.after or 0, 0.0))
        score += SPEAKER * item.named - QUESTION * item.asks
        scores[number] = score
        if item.session:
            sessions[item.session].append(score)
    means = {name: _mean_of_best(found) for name, found in sessions.items()}
    # Rounded, so that the order does not depend on the last bit of a sum.
    return {
        number: round(score + SESSION * means.get(candidates[number].session, score), 6)
        for number, score in scores.items()
    }


def _mean_of_best(scores: list[float]) -> float:
    best = heapq.nlargest(SESSION_BEST, scores)
    return sum(best) / len(best)
