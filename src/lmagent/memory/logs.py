"""Logs: the sessions' own record as items of the index, one for each thing that the user or the model said.

Tool results are left out: `recall` and `read_artifact` find those of a session, and an old result is no knowledge.
So are recalled memories: they would be found twice, and remembered again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from lmagent.core.errors import StoreError
from lmagent.core.events import DurableEvent, InputReceived, MessageAdded, SessionCreated, SessionForked, ToolFinished
from lmagent.core.memory import MemoryItem
from lmagent.memory.search.sources import SourcedIndex

EXCERPT = 400  # characters of a piece of evidence
LONGEST = 2000  # characters of a message that are found; the log has the rest


class Logs(Protocol):
    """The sessions of a workspace."""

    def sessions(self) -> Iterable[str]: ...

    def read(self, session: str, after: int = 0) -> Iterable[DurableEvent]: ...

    def size(self, session: str) -> int:
        """Return the bytes of a session's log; 0 if it is gone."""
        ...


def items_of(session: str, events: Iterable[DurableEvent]) -> tuple[list[MemoryItem], int]:
    """Return the items of a session's events, and the last `seq`. What a fork copied belongs to its source."""
    found, last = list[MemoryItem](), 0
    for event in events:
        last = event.seq
        match event:
            case SessionCreated() if event.parent is not None:
                return [], -1  # a sub-agent's texts are briefs and reports, which its parent's log has
            case SessionForked():
                found = []
            case InputReceived():
                speaker = "user" if event.origin.is_user else event.origin.kind
                found += _item(session, event, speaker, event.message.text)
            case MessageAdded() if event.message.role == "assistant":
                found += _item(session, event, "assistant", event.message.text)
            case _:
                pass
    return found, last


def _item(session: str, event: DurableEvent, speaker: str, text: str) -> list[MemoryItem]:
    text = text.strip()[:LONGEST]
    return [MemoryItem(f"{session}#{event.seq}", text, event.ts, session, speaker)] if text else []


def index_logs(index: SourcedIndex, logs: Logs, marks: dict[str, str]) -> None:
    """Bring the index up to date with the logs; only those that have grown are read. Their marks are taken out."""
    for session in logs.sessions():
        size = logs.size(session)
        known, _, seq = marks.pop(session, "").partition(":")
        if known == str(size):
            continue
        whole = not seq or size < int(known)  # new; or cleared or purged, so that what it had is gone
        after = 0 if whole else int(seq)
        if after < 0:
            continue  # a sub-agent's
        try:
            items, last = items_of(session, logs.read(session, after))
        except StoreError:
            continue  # deleted meanwhile, or unreadable: `sessions list` reports that
        index.take(session, f"{size}:{last or after}", items, whole=whole)


def event_text(events: Iterable[DurableEvent], seq: int) -> str:
    """Return what an event says, shortened; empty if it is gone or says nothing."""
    for event in events:
        if event.seq == seq:
            match event:
                case InputReceived():
                    return f"the user: {_cut(event.message.text)}"
                case MessageAdded():
                    return f"{event.message.role}: {_cut(event.message.text)}"
                case ToolFinished():
                    return f"result of {event.tool}: {_cut(event.content)}"
                case _:
                    return ""
    return ""


def _cut(text: str) -> str:
    text = text.strip()
    return text if len(text) <= EXCERPT else f"{text[:EXCERPT]}…"
