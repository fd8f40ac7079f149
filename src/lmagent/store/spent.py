"""Spent: tokens by session, day and model, kept in the index."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from datetime import date
from typing import Any

from msgspec import Struct

from lmagent.core.events import CompactionDone, DurableEvent, SessionForked, StepFinished
from lmagent.core.model import Usage

SESSIONS_SHOWN = 500
"""Sessions that are listed, those with the highest usage first."""

_SUMS = "SUM(steps), SUM(prompt_tokens), SUM(completion_tokens), SUM(cached_tokens)"


class UsageSums(Struct, frozen=True):
    """The usage of a day, a model or a session.

    Attributes:
        key: the day (`2026-01-31`), the model's name, or the session's id.
    """

    key: str
    title: str = ""
    steps: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0


class Spending(Struct, frozen=True):
    """The usage since some day: in total, by day in order, by model and session from the highest."""

    sessions: int
    total: UsageSums
    by_day: tuple[UsageSums, ...]
    by_model: tuple[UsageSums, ...]
    by_session: tuple[UsageSums, ...]


class Account:
    """The usage of one session, as a fold of its events.

    It is read and written whole, together with the offset up to which the log was read, so that two readers at the same
    time count nothing twice.
    """

    def __init__(self, session: str) -> None:
        self._session = session
        self._rows: dict[tuple[str, str], list[int]] = {}

    def load(self, database: sqlite3.Connection) -> None:
        query = "SELECT day, model, steps, prompt_tokens, completion_tokens, cached_tokens FROM usage WHERE session = ?"
        for day, name, *counts in database.execute(query, (self._session,)):
            self._rows[str(day), str(name)] = [int(count) for count in counts]

    def apply(self, event: DurableEvent, model: str) -> None:
        match event:
            case StepFinished() | CompactionDone(usage=Usage()):
                assert event.usage is not None
                row = self._rows.setdefault((day_of(event.ts), model), [0, 0, 0, 0])
                usage = event.usage
                counts = (1, usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens)
                row[:] = [old + more for old, more in zip(row, counts, strict=True)]
            case SessionForked() if event.at_seq:
                self._rows.clear()  # the session that it is a copy of spent these
            case _:
                pass

    def store(self, database: sqlite3.Connection) -> None:
        """Write it, in an open transaction."""
        database.execute("DELETE FROM usage WHERE session = ?", (self._session,))
        database.executemany(
            "INSERT INTO usage VALUES (?, ?, ?, ?, ?, ?, ?)",
            [(self._session, day, model, *counts) for (day, model), counts in self._rows.items()],
        )


def day_of(ts: float) -> str:
    """Return the local day of a moment in Unix seconds; the first day of the calendar if it is outside of it."""
    try:
        return time.strftime("%Y-%m-%d", time.localtime(ts))
    except (ValueError, OverflowError, OSError):
        return date.min.isoformat()


def spending(database: sqlite3.Connection, since: str) -> Spending:
    """Sum up the usage since a day; an empty `since` is from the beginning."""

    def rows(key: str, order: str, limit: int = -1) -> tuple[UsageSums, ...]:
        query = f"SELECT {key}, {_SUMS} FROM usage WHERE day >= ? GROUP BY {key} ORDER BY {order} LIMIT ?"
        return tuple(_spent(name, "", counts) for name, *counts in database.execute(query, (since, limit)))

    most = "SUM(prompt_tokens + completion_tokens) DESC, 1"
    query = f"SELECT COUNT(DISTINCT session), {_SUMS} FROM usage WHERE day >= ?"
    sessions, *counts = database.execute(query, (since,)).fetchone()
    titles = dict(database.execute("SELECT id, title FROM session"))
    by_session = rows("session", most, SESSIONS_SHOWN)
    return Spending(
        sessions=int(sessions),
        total=_spent("", "", counts),
        by_day=rows("day", "day"),
        by_model=rows("model", most),
        by_session=tuple(_titled(row, str(titles.get(row.key, ""))) for row in by_session),
    )


def _spent(key: str, title: str, counts: Sequence[Any]) -> UsageSums:
    return UsageSums(key, title, *(int(count or 0) for count in counts))


def _titled(row: UsageSums, title: str) -> UsageSums:
    return UsageSums(row.key, title, row.steps, row.prompt_tokens, row.completion_tokens, row.cached_tokens)
