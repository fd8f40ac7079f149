"""Spent: tokens by session, day and model, kept in the index."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from datetime import date
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

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


UsageRow = tuple[str, str, int, int, int, int]
"""Day, model, steps, prompt, reply and cached tokens."""


def count_usage(rows: list[UsageRow], event: DurableEvent, model: str) -> None:
    match event:
        case StepFinished(usage=usage) | CompactionDone(usage=Usage() as usage):
            day = day_of(event.ts)
            rows.append((day, model, 1, usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens))
        case SessionForked() if event.at_seq:
            rows.clear()  # the session that it is a copy of spent these
        case _:
            pass


def store_usage(database: sqlite3.Connection, session: str, rows: Sequence[UsageRow]) -> None:
    """Add usage, in an open transaction."""
    counts = ("steps", "prompt_tokens", "completion_tokens", "cached_tokens")
    added = ", ".join(f"{name} = {name} + excluded.{name}" for name in counts)
    query = f"INSERT INTO usage VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (session, day, model) DO UPDATE SET {added}"
    database.executemany(query, [(session, *row) for row in rows])


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
        by_session=tuple(replace(row, title=str(titles.get(row.key, ""))) for row in by_session),
    )


def _spent(key: str, title: str, counts: Sequence[Any]) -> UsageSums:
    return UsageSums(key, title, *(int(count or 0) for count in counts))
