"""Describe: one pass over all rows, in bounded memory. Estimates are marked with `~`."""

from __future__ import annotations

import heapq
import random
import zlib
from collections.abc import Callable
from typing import Any

from .values import cell, is_number

QUANTILES = 10_000
"""Values of a column by which its quantiles are found; exact up to this number."""

HASHES = 1024
"""Smallest hashes of a column by which its distinct values are estimated: to 3 % on average."""

EXACT = 100_000
"""Distinct values that are counted exactly, over all columns."""

HEADINGS = ("column", "type", "count", "nulls", "distinct", "min", "q25", "median", "q75", "max", "mean")


class Distinct:
    """Counts different texts: exactly up to a limit, then by the smallest hashes of all."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._seen: set[str] | None = set()
        self._heap: list[int] = []
        self._kept: set[int] = set()

    def add(self, text: str) -> None:
        if self._seen is not None:
            self._seen.add(text)
            if len(self._seen) <= self._limit:
                return
            seen, self._seen = self._seen, None
            for each in seen:
                self._hash(each)
            return
        self._hash(text)

    def __str__(self) -> str:
        if self._seen is not None:
            return f"{len(self._seen):,}"
        largest = -self._heap[0] + 1
        return f"~{round((len(self._heap) - 1) * 2**32 / largest):,}"

    def _hash(self, text: str) -> None:
        value = zlib.crc32(text.encode("utf-8", "surrogatepass"))
        if value in self._kept:
            return
        if len(self._heap) < HASHES:
            self._kept.add(value)
            heapq.heappush(self._heap, -value)
        elif value < -self._heap[0]:
            self._kept.add(value)
            self._kept.discard(-heapq.heappushpop(self._heap, -value))


class Column:
    """The facts about one column."""

    def __init__(self, name: str, kind: str, columns: int) -> None:
        self.name, self.kind = name, kind
        self.odd = 0  # values that are no numbers, in a column of numbers
        self._number = is_number(kind)
        self._count = self._nulls = self._numbers = 0
        self._sum = 0.0
        self._least: Any = None
        self._most: Any = None
        self._kept: list[float] = []
        self._random = random.Random(0)
        self._distinct = Distinct(max(HASHES, EXACT // columns))
        self.add: Callable[[Any], None] = self._add_number if self._number else self._add_text

    def _add_number(self, value: Any) -> None:
        if value is None:
            self._nulls += 1
            return
        self._count += 1
        self._distinct.add(value if isinstance(value, str) else str(value))
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            self.odd += 1
            return
        if number != number:  # NaN has no place among the others
            self.odd += 1
            return
        self._numbers += 1
        self._sum += number
        if self._least is None or number < self._least[0]:
            self._least = (number, value)
        if self._most is None or number > self._most[0]:
            self._most = (number, value)
        if len(self._kept) < QUANTILES:
            self._kept.append(number)
        elif (place := self._random.randrange(self._numbers)) < QUANTILES:
            self._kept[place] = number

    def _add_text(self, value: Any) -> None:
        if value is None:
            self._nulls += 1
            return
        self._count += 1
        text = value if isinstance(value, str) else cell(value) or ""
        self._distinct.add(text)
        if self._least is None or text < self._least[1]:
            self._least = (0, text)
        if self._most is None or text > self._most[1]:
            self._most = (0, text)

    def facts(self) -> list[str | None]:
        """Return the row of the answer, see HEADINGS."""
        least = "-" if self._least is None else _short(self._least[1])
        most = "-" if self._most is None else _short(self._most[1])
        quantiles: list[str | None] = ["-"] * 3
        mean = "-"
        if self._number and self._numbers:
            mark = "~" if self._numbers > len(self._kept) else ""
            values = sorted(self._kept)
            quantiles = [f"{mark}{_number(_quantile(values, share))}" for share in (0.25, 0.5, 0.75)]
            mean = _number(self._sum / self._numbers)
        counts = (f"{self._count:,}", f"{self._nulls:,}", str(self._distinct))
        return [self.name, self.kind, *counts, least, *quantiles, most, mean]


def _quantile(values: list[float], share: float) -> float:
    """Return a quantile, between two values if it falls there."""
    at = share * (len(values) - 1)
    low = int(at)
    high = min(low + 1, len(values) - 1)
    return values[low] + (values[high] - values[low]) * (at - low)


def _number(value: float) -> str:
    return format(value, ",.0f") if 1e6 <= abs(value) < 1e15 else format(value, ".6g")


def _short(value: Any) -> str | None:
    text = cell(value)
    return text if text is None or len(text) <= 40 else f"{text[:40]}…"
