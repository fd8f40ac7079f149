"""Usage: tokens by day, model and session, what fills a window, and the latest activity."""

from __future__ import annotations

import datetime
from typing import Annotated, Literal

from msgspec import Meta, Struct
from msgspec.structs import asdict

from lmagent.gateway.compat.http import state_of
from lmagent.gateway.http.route import Call, Routes
from lmagent.store.activity import KEPT, Activity
from lmagent.store.spent import UsageSums, day_of

ROUTES = Routes()

Range = Literal["today", "7d", "30d", "all"]

_DAYS: dict[Range, int] = {"today": 1, "7d": 7, "30d": 30}  # days of a range, including today


class UsageQuery(Struct, frozen=True):
    """How far back, in days of this machine's time zone."""

    range: Range = "7d"


class ContextPart(Struct, frozen=True):
    """A part of the prompt, and its estimated tokens."""

    name: str
    tokens: int


class ContextUse(Struct, frozen=True):
    """The use of a session's window in tokens; at `trigger` the conversation is compacted."""

    parts: tuple[ContextPart, ...]
    used: int
    window: int
    trigger: int
    compactions: int


class TokenCounts(Struct, frozen=True):
    """Usage in tokens; `steps` are model calls."""

    steps: int
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int


class UsageTotals(TokenCounts, frozen=True, kw_only=True):
    sessions: int


class DayUsage(TokenCounts, frozen=True, kw_only=True):
    day: str


class ModelUsage(TokenCounts, frozen=True, kw_only=True):
    """Usage of a model; the name is empty if the server gave none."""

    model: str


class SessionUsage(TokenCounts, frozen=True, kw_only=True):
    session: str
    session_id: str
    title: str


class UsageReport(Struct, frozen=True):
    """Usage of a range. Days in order, without empty ones; models and sessions by falling usage."""

    range: Range
    totals: UsageTotals
    by_day: tuple[DayUsage, ...]
    by_model: tuple[ModelUsage, ...]
    by_session: tuple[SessionUsage, ...]


@ROUTES.get("/api/usage", "Tokens by day, model and session", place="gateway")
def show_usage(call: Call, query: UsageQuery) -> UsageReport:
    """Return the usage in a range of days, without deleted sessions."""
    since = first_day(query.range, call.gateway.host.clock.now())
    with call.gateway.index() as index:
        found = index.spending(since)
    sessions = (
        SessionUsage(*_counts(row), session=row.key, session_id=row.key, title=row.title) for row in found.by_session
    )
    return UsageReport(
        range=query.range,
        totals=UsageTotals(*_counts(found.total), sessions=found.sessions),
        by_day=tuple(DayUsage(*_counts(row), day=row.key) for row in found.by_day),
        by_model=tuple(ModelUsage(*_counts(row), model=row.key) for row in found.by_model),
        by_session=tuple(sessions),
    )


def first_day(wanted: Range, now: float) -> str:
    """Return the first local day of a range that ends today; empty for all time."""
    days = _DAYS.get(wanted)
    if days is None:
        return ""
    return (datetime.date.fromisoformat(day_of(now)) - datetime.timedelta(days=days - 1)).isoformat()


def _counts(row: UsageSums) -> tuple[int, int, int, int]:
    return row.steps, row.prompt_tokens, row.completion_tokens, row.cached_tokens


@ROUTES.get("/api/sessions/{session}/context", "What fills a session's window, and where it is shortened")
async def show_context(call: Call) -> ContextUse:
    from lmagent.app.commands.charts import window_parts

    gateway, session = call.gateway, await call.known_session()
    state = await state_of(gateway, session)
    if (known := gateway.runner.usable(session)) is not None:
        window = known.session.window
    else:
        settings = gateway.host.settings
        served = None if settings.context_window else await gateway.host.served.window(state.model)
        window = settings.window(served)
    parts = tuple(ContextPart(name, tokens) for name, tokens in window_parts(state).items())
    return ContextUse(parts, state.estimate_tokens(), window.tokens, window.trigger, state.compactions)


# --- activity ---------------------------------------------------------------------------------------------------------


class ActivityQuery(Struct, frozen=True):
    """How many rows, and of which session; empty for all."""

    limit: Annotated[int, Meta(ge=1, le=KEPT)] = 50
    session: Annotated[str, Meta(max_length=64)] = ""


class ActivityRow(Activity, frozen=True):
    """An event of a session; `session_id` repeats the session's id for earlier clients."""

    session_id: str = ""


class ActivityList(Struct, frozen=True):
    """The rows, newest first."""

    activity: tuple[ActivityRow, ...]


@ROUTES.get("/api/activity", "What happened last", place="gateway")
def show_activity(call: Call, query: ActivityQuery) -> ActivityList:
    with call.gateway.index() as index:
        rows = index.activity(query.limit, query.session)
    return ActivityList(tuple(ActivityRow(**asdict(row), session_id=row.session) for row in rows))
