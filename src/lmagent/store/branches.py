"""Branches: the turns at which copies of a session diverge, and the sessions that continue from there."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping

from msgspec import Struct

from lmagent.core.events import DurableEvent, InputReceived, SessionForked, TurnFinished, TurnStarted


class Branch(Struct, frozen=True):
    """A session as one of several with the same beginning.

    Attributes:
        created: Unix seconds of its first event; of a copy, of the moment in which it was made.
        branch_turn: the first turn that it does not share with that session; 0 if it is no copy.
    """

    id: str
    title: str
    created: float
    parent: str
    branch_turn: int


class Fork(Struct, frozen=True):
    """A turn in which several sessions diverge.

    Attributes:
        at: the one of the sessions that leads to the session in question.
        sessions: the sessions, the one that was copied first.
    """

    turn: int
    at: int
    sessions: tuple[Branch, ...]


def branches(database: sqlite3.Connection) -> dict[str, Branch]:
    query = (
        "SELECT id, title, created, parent, branch_turn FROM session "
        "WHERE branch_turn > 0 OR id IN (SELECT parent FROM session WHERE branch_turn > 0)"
    )
    return {row[0]: Branch(*row) for row in database.execute(query)}


def end_before(events: Iterable[DurableEvent], turn: int) -> int:
    """Return the last event before a turn, 0 if the turn before it has not ended.

    Inputs that the turn answers are not copied, and a copy without new turns is not a branch of its own yet.
    """
    last, running = 0, False
    for event in events:
        if isinstance(event, TurnStarted):
            if event.turn >= turn:
                break
            running = True
        elif isinstance(event, TurnFinished):
            running = False
        if not isinstance(event, InputReceived | SessionForked):
            last = event.seq
    return 0 if running else last


def forks_of(session: str, rows: Mapping[str, Branch]) -> list[Fork]:
    """Return the turns in which a session, or one that it is a copy of, diverges from other sessions.

    A copy of a copy that leaves before the first copy did belongs to the original.
    """
    groups: dict[tuple[str, int], list[Branch]] = {}
    for row in sorted(rows.values(), key=lambda row: (row.created, row.id)):
        if row.branch_turn:
            groups.setdefault(_origin(row, rows), []).append(row)
    found: list[Fork] = []
    here, shared = session, 0  # of the first session all turns are its own, of the others those before `shared`
    met: set[str] = set()
    while here not in met:
        met.add(here)
        row = rows.get(here)
        origin = _origin(row, rows) if row is not None and row.branch_turn else None
        for (parent, turn), copies in groups.items():
            if parent == here and (not shared or turn < shared):
                found.append(_fork(turn, here, parent, copies, rows))
        if origin is None:
            break
        found.append(_fork(origin[1], here, origin[0], groups[origin], rows))
        here, shared = origin
    return sorted((fork for fork in found if len(fork.sessions) > 1), key=lambda fork: fork.turn)


def _fork(turn: int, here: str, parent: str, copies: list[Branch], rows: Mapping[str, Branch]) -> Fork:
    original = rows.get(parent)
    sessions = (original, *copies) if original is not None else tuple(copies)
    return Fork(turn, next((at for at, row in enumerate(sessions) if row.id == here), 0), sessions)


def _origin(row: Branch, rows: Mapping[str, Branch]) -> tuple[str, int]:
    parent, met = row.parent, {row.id}
    while (above := rows.get(parent)) is not None and above.branch_turn >= row.branch_turn and parent not in met:
        met.add(parent)
        parent = above.parent
    return parent, row.branch_turn
