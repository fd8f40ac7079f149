"""Table: what the operations need to know of a file, whatever its format."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Any

from .values import guessed, type_of

LOOKED_AT = 1000
"""Rows by which types and columns are guessed."""

Row = list[Any]


class Table(ABC):
    """The rows of a file.

    Attributes:
        kind: the format, as it is shown.
        names: the columns' names.
        reached: rows that `count` has counted up to now, if it takes long.
        notes: remarks for the model; they may grow while rows are read.
    """

    kind = ""
    reached = 0
    names: list[str]

    def __init__(self) -> None:
        self.notes: list[str] = []

    @abstractmethod
    def rows(self) -> Iterator[Row]:
        """Return all rows, from the first one on; it can be called again."""

    def count(self) -> int:
        return sum(1 for _ in self.rows())

    def tail(self, number: int) -> list[Row]:
        return list(deque(self.rows(), number))

    def types(self) -> list[str]:
        """Return the columns' types: declared, or guessed from the first rows."""
        return guessed(list(islice(self.rows(), LOOKED_AT)), len(self.names), self.judge)

    def judge(self, value: Any) -> str:
        """Return the type of one value."""
        return type_of(value)

    @property
    def is_guessed(self) -> bool:
        """Whether `types` are guesses."""
        return True

    def remarks(self) -> list[str]:
        """Return remarks on the rows that were read."""
        return list(self.notes)


class Rows(Table):
    """A table whose rows are in memory."""

    def __init__(self, kind: str, names: list[str], rows: list[Row]) -> None:
        super().__init__()
        self.kind, self.names, self._rows = kind, names, rows

    def rows(self) -> Iterator[Row]:
        return iter(self._rows)

    def count(self) -> int:
        return len(self._rows)

    def tail(self, number: int) -> list[Row]:
        return self._rows[-number:]
