"""Live events: the envelope of every event, and the events that are not stored and only reach watchers."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

VERSION = 1

AWAY, BACK = "server_away", "server_back"
"""Codes of the notices that a turn waits for an unreachable model server, and that it continues."""


class Envelope(Struct, frozen=True, kw_only=True, tag_field="type"):
    """The fields of every event.

    Attributes:
        v: version of the event schema.
        id: unique within the session.
        seq: position in the log, from 1; 0 for an ephemeral event.
        ts: Unix time in seconds.
        turn: number of the turn it belongs to, from 1; 0 outside turns.
        session: id of the session, set on the way out to watchers and not stored (the folder says it).
    """

    v: int = VERSION
    id: str = ""
    seq: int = 0
    ts: float = 0.0
    turn: int = 0


class TextDelta(Envelope, frozen=True, tag="text.delta"):
    """A piece of the answer, live."""

    text: str


class ThinkingDelta(Envelope, frozen=True, tag="thinking.delta"):
    """A piece of the model's thought, live."""

    text: str


class ToolOutput(Envelope, frozen=True, tag="tool.output"):
    """A piece of a tool's output, live."""

    call_id: str
    text: str


class PrefillProgress(Envelope, frozen=True, tag="progress"):
    """The server reads the prompt.

    Attributes:
        fraction: how much of it has been read, 0 to 1, if known.
        seconds_left: how long the rest will take, if known.
        waits: it has not begun, because it works for another session.
    """

    fraction: float | None = None
    seconds_left: float | None = None
    waits: bool = False


class RetryScheduled(Envelope, frozen=True, tag="retrying"):
    """The model call failed and will be tried again in `delay` seconds."""

    reason: str
    attempt: int
    delay: float


class SubagentEvent(Envelope, frozen=True, tag="subagent.event"):
    """An event of a sub-agent's session, shown to the watchers of the session that started it.

    Attributes:
        call_id: the call that started it.
        child: id of its session.
        event: the event, durable or live; one of these again for a child of the child.
    """

    call_id: str
    child: str
    event: Any


def innermost(event: Any) -> tuple[str, Any]:
    """Return an event and the session of the sub-agent that it belongs to; empty for the watched session itself."""
    child = ""
    while isinstance(event, SubagentEvent):
        child, event = event.child, event.event
    return child, event
