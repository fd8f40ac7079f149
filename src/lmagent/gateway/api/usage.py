"""Usage: tokens by day, model and session."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Literal

from anyio import to_thread
from msgspec import Struct

from lmagent.gateway.compat.http import state_of
from lmagent.gateway.http.route import Call, Route
from lmagent.store.index import SessionIndex
from lmagent.store.spent import Spending, UsageSums, day_of

Range = Literal["today", "7d", "30d", "all"]

_DAYS: dict[Range, int] = {"today": 1, "7d": 7, "30d": 30}
"""Days of a range, including today."""


class UsageQuery(Struct, frozen=True):
    """How far back, in days of this machine's time zone."""

    range: Range = "7d"


class ContextPart(Struct, frozen=True):
    """A part of the prompt, and its estimated tokens."""

    name: str
    tokens: int


class ContextUse(Struct, frozen=True):
    """The use of a session's window, in tokens.

    Attributes:
        parts: the parts of the prompt.
        used: the whole prompt.
        window: the window that the model's server serves, or the assumed one.
        trigger: the size of the prompt at which the conversation is compacted.
        compactions: number of compactions so far.
    """

    parts: tuple[ContextPart, ...]
    used: int
    window: int
    trigger: int
    compactions: int


class UsageTotals(Struct, frozen=True):
    """The total usage, in tokens; `steps` are model calls."""

    steps: int
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    sessions: int


class DayUsage(Struct, frozen=True):
    day: str
    steps: int
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int


class ModelUsage(Struct, frozen=True):
    """Usage of a model; the name is empty if the server gave none."""

    model: str
    steps: int
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int


class SessionUsage(Struct, frozen=True):
    session: str
    session_id: str
    title: str
    steps: int
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int


class UsageReport(Struct, frozen=True):
    """Usage of a range. Days in order, without empty ones; models and sessions by falling usage."""

    range: Range
    totals: UsageTotals
    by_day: tuple[DayUsage, ...]
    by_model: tuple[ModelUsage, ...]
    by_session: tuple[SessionUsage, ...]


async def show_usage(call: Call) -> UsageReport:
    """Return the usage in a range of days, without deleted sessions."""
    wanted: Range = call.query.range
    since = first_day(wanted, call.gateway.host.clock.now())
    found = await to_thread.run_sync(spent_since, call.gateway.host.store.root, since)
    return UsageReport(
        range=wanted,
        totals=UsageTotals(*_counts(found.total), sessions=found.sessions),
        by_day=tuple(DayUsage(row.key, *_counts(row)) for row in found.by_day),
        by_model=tuple(ModelUsage(row.key, *_counts(row)) for row in found.by_model),
        by_session=tuple(SessionUsage(row.key, row.key, row.title, *_counts(row)) for row in found.by_session),
    )


def first_day(wanted: Range, now: float) -> str:
    """Return the first local day of a range that ends today; empty for all time."""
    days = _DAYS.get(wanted)
    if days is None:
        return ""
    return (datetime.date.fromisoformat(day_of(now)) - datetime.timedelta(days=days - 1)).isoformat()


def spent_since(root: Path, since: str) -> Spending:
    """Return the usage of the sessions below `root` from a local day on.

    Raises:
        StoreError: the index cannot be read.
    """
    with SessionIndex(root) as index:
        index.refresh()
        return index.spending(since)


def _counts(row: UsageSums) -> tuple[int, int, int, int]:
    return row.steps, row.prompt_tokens, row.completion_tokens, row.cached_tokens


async def show_context(call: Call) -> ContextUse:
    from lmagent.app.commands.charts import window_parts

    gateway, session = call.gateway, call.path["session"]
    gateway.runner.require(session)
    state = await state_of(gateway, session)
    if (known := gateway.runner.usable(session)) is not None:
        window = known.session.window
    else:
        settings = gateway.host.settings
        served = None if settings.context_window else await gateway.host.served.window(state.model)
        window = settings.window(served)
    parts = tuple(ContextPart(name, tokens) for name, tokens in window_parts(state).items())
    return ContextUse(parts, state.estimate_tokens(), window.tokens, window.trigger, state.compactions)


ROUTES = (
    Route("GET", "/api/usage", show_usage, "Tokens by day, model and session", UsageQuery, answer=UsageReport),
    Route(
        "GET",
        "/api/sessions/{session}/context",
        show_context,
        "What fills a session's window, and where it is shortened",
        answer=ContextUse,
        errors=(404,),
    ),
)
