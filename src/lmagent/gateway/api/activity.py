"""Activity: the latest messages, calls and approvals, in one session or in all."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from anyio import to_thread
from msgspec import Meta, Struct

from lmagent.gateway.http.route import Call, Route
from lmagent.store import activity as lines
from lmagent.store.index import SessionIndex


class ActivityQuery(Struct, frozen=True):
    """How many rows, and of which session; empty for all."""

    limit: Annotated[int, Meta(ge=1, le=lines.KEPT)] = 50
    session: Annotated[str, Meta(max_length=64)] = ""


class ActivityRow(Struct, frozen=True):
    """An event of a session.

    Attributes:
        session_id: as `session`, for earlier clients.
        ts: Unix seconds.
        type: message, tool_call, tool_result, approval_request, approval_resolved or done.
        tool: empty if it is not about a call.
        summary: one line.
        status: of a result or an approval, or how a turn ended; empty otherwise.
        title: of the session.
    """

    session: str
    session_id: str
    seq: int
    ts: float
    type: str
    tool: str
    summary: str
    status: str
    duration_ms: int
    title: str


class ActivityList(Struct, frozen=True):
    """The rows, newest first."""

    activity: tuple[ActivityRow, ...]


async def show_activity(call: Call) -> ActivityList:
    query: ActivityQuery = call.query
    rows = await to_thread.run_sync(_newest, call.gateway.host.store.root, query.limit, query.session)
    return ActivityList(tuple(map(row_of, rows)))


def row_of(line: lines.Activity) -> ActivityRow:
    return ActivityRow(
        line.session,
        line.session,
        line.seq,
        line.ts,
        line.type,
        line.tool,
        line.summary,
        line.status,
        line.duration_ms,
        line.title,
    )


def _newest(root: Path, limit: int, session: str) -> list[lines.Activity]:
    with SessionIndex(root) as index:
        index.refresh()
        return index.activity(limit, session)


ROUTES = (Route("GET", "/api/activity", show_activity, "What happened last", ActivityQuery, answer=ActivityList),)
