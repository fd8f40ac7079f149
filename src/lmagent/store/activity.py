"""Activity: a line for each thing that happens in the sessions, kept in the index."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import astuple

from lmagent.core import events as ev

KEPT = 1000
"""Lines kept per session, and the largest number that can be asked for."""

LONGEST = 200


class Activity(Struct, frozen=True):
    """One line; the fields but the last are the columns of the table.

    Attributes:
        type: message, tool_call, tool_result, approval_request, approval_resolved or done.
        status: of a result (ok, error, denied, interrupted), of an approval (approved, denied), or how a turn ended.
    """

    session: str
    seq: int
    ts: float
    type: str
    tool: str = ""
    summary: str = ""
    status: str = ""
    duration_ms: int = 0
    title: str = ""


def activity_of(session: str, event: ev.DurableEvent) -> Activity | None:
    """Return the line for an event; None for an event without one."""

    def line(type: str, tool: str = "", summary: str = "", status: str = "", seconds: float = 0.0) -> Activity:
        words = " ".join(summary.split())[:LONGEST]
        return Activity(session, event.seq, event.ts, type, tool, words, status, round(seconds * 1000))

    match event:
        case ev.InputReceived():
            return line("message", summary=event.message.text)
        case ev.ToolStarted():
            return line("tool_call", event.tool, event.summary)
        case ev.ToolFinished():
            return line("tool_result", event.tool, event.content[: 2 * LONGEST], event.status, event.duration)
        case ev.ApprovalRequested():
            return line("approval_request", event.tool, event.summary)
        case ev.ApprovalResolved(approval=approval) if approval:
            return line("approval_resolved", status="approved" if event.approved else "denied")
        case ev.TurnFinished():
            return line("done", summary=event.answer or event.reason, status=event.ending)
        case _:
            return None


def store_activity(database: sqlite3.Connection, session: str, rows: Sequence[Activity]) -> None:
    """Add lines, in an open transaction. The oldest make room."""
    if not rows:
        return
    values = [astuple(row)[:-1] for row in rows[-KEPT:]]
    database.executemany("INSERT OR REPLACE INTO activity VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values)
    oldest = "SELECT seq FROM activity WHERE session = ? ORDER BY seq DESC LIMIT 1 OFFSET ?"
    database.execute(f"DELETE FROM activity WHERE session = ? AND seq < ({oldest})", (session, session, KEPT - 1))


def activity(database: sqlite3.Connection, limit: int, session: str = "") -> list[Activity]:
    where = "WHERE activity.session = ?" if session else ""
    query = (
        "SELECT activity.*, COALESCE(session.title, '') "
        f"FROM activity LEFT JOIN session ON session.id = activity.session {where} "
        "ORDER BY activity.ts DESC, activity.session, activity.seq DESC LIMIT ?"
    )
    return [Activity(*row) for row in database.execute(query, (session, limit) if session else (limit,))]
