"""Texts about memories, for the model and for the user."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

from lmagent.core.plurals import plural
from lmagent.memory.entries import LAST, MemoryEntry
from lmagent.memory.folder import Operation, Refused
from lmagent.memory.memory import FoundMemory, MemoryScope
from lmagent.memory.reflector import Report

ReadEvent = Callable[[str, int], str]  # (session, seq) -> what the event says; empty if it is gone

LONGEST = 600  # characters of a hit


def hits_text(found: Sequence[FoundMemory], budget: int) -> str:
    """Return hits within a budget of tokens (bytes / 4), those of one session together, each with its id and origin."""
    groups: dict[str, list[FoundMemory]] = {}
    for one in found:
        groups.setdefault(one.hit.session, []).append(one)
    lines, room = list[str](), budget * 4
    for group in groups.values():
        for one in sorted(group, key=lambda other: other.hit.ts):
            line = hit_line(one)
            room -= len(line.encode()) + 1
            if room < 0 and lines:
                return "\n".join((*lines, "[… more; ask for less at a time]"))
            lines.append(line)
    return "\n".join(lines)


def hit_line(found: FoundMemory) -> str:
    hit = found.hit
    text = hit.text if len(hit.text) <= LONGEST else f"{hit.text[:LONGEST]}…"
    if found.entry is None:
        return f"[{hit.id}, {day(hit.ts)}, {hit.speaker} said] {text}"
    return f"[{hit.id}, {origin(found.entry)}] {text}"


def origin(entry: MemoryEntry) -> str:
    authors = {"hand": "written by hand", "user": "stored by the user", "model": "stored by the model"}
    author = authors.get(entry.by, f"by {entry.by}")
    return f"{day(entry.at)}, {author}" if entry.at else author


def day(at: float) -> str:
    return f"{datetime.fromtimestamp(at).astimezone():%Y-%m-%d}" if 0 < at < LAST else "undated"


def entry_line(entry: MemoryEntry) -> str:
    """Return an entry in a list for the user."""
    pin = "* " if entry.is_pinned else "  "
    gone = f"  (replaced by {entry.replaced})" if entry.replaced else ""
    return f"{pin}{entry.id}  {day(entry.at):<10}  {entry.text}{gone}"


def why_text(memory: MemoryScope, entry: MemoryEntry, read: ReadEvent) -> str:
    """Return where a memory is from: its author, its changes, and the messages that it was concluded from."""
    rows = [entry.text, "", f"{memory.scope}, {memory.folder.root / entry.file}: {entry.kind}, {origin(entry)}"]
    rows += [f"replaced by {entry.replaced}"] if entry.replaced else []
    rows += [f"{day(operation.at)}  {operation.what}" for operation in history(memory, entry.id)]
    for session, seq, text in evidence_of(entry, read):
        rows += ["", f"{session}#{seq}:", text or "the session or the message does not exist any more"]
    return "\n".join(rows)


def evidence_of(entry: MemoryEntry, read: ReadEvent) -> Iterable[tuple[str, int, str]]:
    """Yield the session, the `seq` and the text of each message that a memory was concluded from."""
    for place in entry.evidence:
        session, _, seq = place.partition("#")
        number = int(seq) if seq.isdecimal() and len(seq) < 10 else 0
        yield session, number, read(session, number) if number else ""


def history(memory: MemoryScope, id: str) -> Iterable[Operation]:
    """Yield the changes that concern an entry, oldest first."""
    for operation in memory.folder.operations():
        touched = (side for change in operation.changes for side in (change.before, change.after) if side is not None)
        if any(side.id == id for side in touched):
            yield operation


def refused_line(row: Refused) -> str:
    return f"{day(row.at)}  {row.text or '(not shown)'}: {row.reason}"


def operation_text(operation: Operation) -> str:
    """Return a change as a diff."""
    rows = [operation.what]
    for change in operation.changes:
        rows += [f"- {change.before.file}: {change.before.text}"] if change.before is not None else []
        rows += [f"+ {change.after.file}: {change.after.text}"] if change.after is not None else []
    return "\n".join(rows)


def report_text(report: Report) -> str:
    """Return what a run of reflection did, with what it refused."""
    rows = [f"read {plural(report.sessions, 'session')}{f', {report.left} are left' if report.left else ''}"]
    rows += [f"+ {entry.id} {entry.file}: {entry.text}" for entry in (*report.pinned, *report.stored)]
    rows += [f"refused: {row.text or '(not shown)'} ({row.reason})" for row in report.refused]
    rows += [f"failed: {line}" for line in report.failed]
    return "\n".join(rows)
