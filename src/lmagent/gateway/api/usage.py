"""Usage: what was spent, by day, model and session."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Literal

from anyio import to_thread
from msgspec import Struct

from lmagent.gateway.http.route import Call, Route
from lmagent.gateway.seed.http import state_of
from lmagent.store.index import SessionIndex
from lmagent.store.spent import Spending, UsageSums, day_of

Range = Literal["today", "7d", "30d", "all"]

_DAYS: dict[Range, int] = {"today": 1, "7d": 7, "30d": 30}
"""Days of a range; today is one of them."""


class UsageQuery(Struct, frozen=True):
    """How far back, in days of this machine's time zone."""

    range: Range = "7d"


class ContextPart(Struct, frozen=True):
    """A part of the prompt, and its estimated tokens."""

    name: str
    tokens: int


class ContextUse(Struct, frozen=True):
    """What fills a session's window, in tokens.

    Attributes:
        parts: the parts of the prompt.
        used: the whole prompt.
        window: the window that the model's server serves, or the assumed one.
        trigger: the size of the prompt at which the conversation is shortened.
        compactions: how often it was shortened so far.
    """

    parts: tuple[ContextPart, ...]
    used: int
    window: int
    trigger: int
    compactions: int


class UsageTotals(Struct, frozen=True):
    """All that was spent; tokens, and `steps` are model calls."""

    steps: int
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    sessions: int


class DayUsage(Struct, frozen=True):
    """What a day took."""

    day: str
    steps: int
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int


class ModelUsage(Struct, frozen=True):
    """What a model took; no name where the server gave none."""

    model: str
    steps: int
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int


class SessionUsage(Struct, frozen=True):
    """What a session took."""

    session: str
    session_id: str
    title: str
    steps: int
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int


class Usage(Struct, frozen=True):
    """Usage of a range. Days in their order, those without any left out; the rest from the highest down."""

    range: Range
    totals: UsageTotals
    by_day: tuple[DayUsage, ...]
    by_model: tuple[ModelUsage, ...]
    by_session: tuple[SessionUsage, ...]


async def show_usage(call: Call) -> Usage:
    """What was spent in a range of days. Sessions that were deleted do not count any more."""
    wanted: Range = call.query.range
    since = first_day(wanted, call.hub.host.clock.now())
    found = await to_thread.run_sync(spent_since, call.hub.host.store.root, since)
    return Usage(
        range=wanted,
        totals=UsageTotals(*_counts(found.total), sessions=found.sessions),
        by_day=tuple(DayUsage(row.key, *_counts(row)) for row in found.by_day),
        by_model=tuple(ModelUsage(row.key, *_counts(row)) for row in found.by_model),
        by_session=tuple(SessionUsage(row.key, row.key, row.title, *_counts(row)) for row in found.by_session),
    )


def first_day(wanted: Range, now: float) -> str:
    """The first local day of a range that ends today; empty for the beginning of all times."""
    days = _DAYS.get(wanted)
    if days is None:
        return ""
    return (datetime.date.fromisoformat(day_of(now)) - datetime.timedelta(days=days - 1)).isoformat()


def spent_since(root: Path, since: str) -> Spending:
    """What was spent in the sessions below `root` from a local day on.

    Raises:
        StoreError: the index cannot be read.
    """
    with SessionIndex(root) as index:
        index.refresh()
        return index.spending(since)


def _counts(row: UsageSums) -> tuple[int, int, int, int]:
    return row.steps, row.prompt_tokens, row.completion_tokens, row.cached_tokens


async def show_context(call: Call) -> ContextUse:
    """What fills a session's window."""
    from lmagent.app.charts import window_parts

    hub, session = call.hub, call.path["session"]
    hub.must_be_there(session)
    state = await state_of(hub, session)
    if (desk := hub.opened(session)) is not None:
        window = desk.session.window
    else:
        settings = hub.host.settings
        served = None if settings.context_window else await hub.host.served.window(state.model)
        window = settings.window(served)
    parts = tuple(ContextPart(name, tokens) for name, tokens in window_parts(state).items())
    return ContextUse(parts, state.estimate_tokens(), window.tokens, window.trigger, state.compactions)


ROUTES = (
    Route("GET", "/api/usage", show_usage, "Tokens by day, model and session", UsageQuery, answer=Usage),
    Route(
        "GET",
        "/api/sessions/{session}/context",
        show_context,
        "What fills a session's window, and where it is shortened",
        answer=ContextUse,
        errors=(404,),
    ),
)
