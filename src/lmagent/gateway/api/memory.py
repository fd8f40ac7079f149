"""Memory: the entries of both scopes, searched, explained and changed; and reflection on demand."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing, contextmanager
from typing import Annotated, Any

from msgspec import Meta, Struct

from lmagent.core.errors import StoreError
from lmagent.gateway.http.errors import Refusal, refusing
from lmagent.gateway.http.route import Call, Routes
from lmagent.memory.entries import By, Kind, MemoryEntry
from lmagent.memory.folder import Operation, Refused
from lmagent.memory.memory import FoundMemory, Memories, MemoryRefused, MemoryScope, Scope
from lmagent.memory.opening import open_memories
from lmagent.memory.show import evidence_of, history

ROUTES = Routes()

REFUSED = 20  # refused texts of each scope that are listed, the newest

Text = Annotated[str, Meta(max_length=10_000)]


class MemoryRow(Struct, frozen=True):
    """One memory.

    Attributes:
        at: Unix time; 0 if unknown.
        pinned: whether the prompt of each new session has it.
        proposed: whether reflection stored it, and the user has not pinned it.
        replaced: the id of the memory that contradicts it; empty while it holds.
        file: the file that has it, relative to its scope's folder.
    """

    id: str
    text: str
    kind: Kind
    by: By
    at: float
    pinned: bool
    proposed: bool
    replaced: str
    scope: Scope
    file: str


class RefusedRow(Struct, frozen=True):
    """A text that was not stored, or not pinned; empty if it may hold a secret."""

    at: float
    text: str
    reason: str
    scope: Scope


class MemoryChange(Struct, frozen=True):
    """A change of the memory: the texts that it removed and added."""

    what: str
    scope: Scope
    at: float
    removed: tuple[str, ...]
    added: tuple[str, ...]


class MemoryList(Struct, frozen=True):
    """The memories, pinned ones first, then the newest; `last` is the change that undo takes back."""

    memories: tuple[MemoryRow, ...]
    refused: tuple[RefusedRow, ...]
    problems: tuple[str, ...]
    last: MemoryChange | None


class MemoryFilter(Struct, frozen=True):
    """One scope; empty for both."""

    scope: Scope | None = None


class MemoryQuery(Struct, frozen=True):
    """A question or words, and how many hits."""

    q: Text
    limit: Annotated[int, Meta(ge=1, le=50)] = 10


class MemoryHit(Struct, frozen=True):
    """A hit; `memory` is None for a message of a session."""

    id: str
    text: str
    at: float
    session: str
    speaker: str
    scope: Scope
    memory: MemoryRow | None


class MemoryHits(Struct, frozen=True):
    """The hits, best first."""

    hits: tuple[MemoryHit, ...]


class EvidenceRow(Struct, frozen=True):
    """An event from which a memory was concluded; `text` is empty if it does not exist any more."""

    session: str
    seq: int
    text: str


class Why(Struct, frozen=True):
    """Where a memory is from."""

    memory: MemoryRow
    path: str
    changes: tuple[MemoryChange, ...]
    evidence: tuple[EvidenceRow, ...]


class NewMemory(Struct, frozen=True, forbid_unknown_fields=True):
    """A memory of the user."""

    text: Text
    kind: Kind = "fact"
    scope: Scope = "workspace"
    pinned: bool = False


class MemoryEdit(Struct, frozen=True, forbid_unknown_fields=True):
    """A new text, or whether the memory is pinned; None leaves it unchanged."""

    text: Text | None = None
    pinned: bool | None = None


class Reflected(Struct, frozen=True):
    """What a reflection read and stored; `left` are sessions that the next one reads."""

    sessions: int
    left: int
    stored: tuple[MemoryRow, ...]
    pinned: tuple[MemoryRow, ...]
    refused: tuple[RefusedRow, ...]
    failed: tuple[str, ...]


@ROUTES.get("/api/memory", "The memories of the workspace and of the user")
def list_memories(call: Call, query: MemoryFilter) -> MemoryList:
    with _memories(call) as memories:
        scopes = [memory for memory in memories.scopes.values() if query.scope in (None, memory.scope)]
        rows = [_row(entry, memory.scope) for memory in scopes for entry in memory.entries()]
        refused = [_refused(row, memory.scope) for memory in scopes for row in memory.folder.refused()[-REFUSED:]]
        problems = tuple(problem for memory in scopes for problem in memory.folder.problems)
        last = memories.undoable()
    rows.sort(key=lambda row: (not row.pinned, -row.at))
    refused.sort(key=lambda row: -row.at)
    return MemoryList(tuple(rows), tuple(refused), problems, _change(*last) if last else None)


@ROUTES.post("/api/memory", "Store a memory", status=201)
def store_memory(call: Call, body: NewMemory) -> MemoryRow:
    """Store a text of the user. One that is known stays as it is, but is pinned if that was asked for."""
    with _memories(call) as memories:
        stored = memories.scopes[body.scope].store(body.text, by="user", kind=body.kind, pinned=body.pinned)
        return _row(stored, body.scope)


@ROUTES.get("/api/memory/search", "Find memories and earlier messages")
def search_memories(call: Call, query: MemoryQuery) -> MemoryHits:
    def row(found: FoundMemory) -> MemoryHit:
        hit, memory = found.hit, None if found.entry is None else _row(found.entry, found.scope)
        session = hit.session if memory is None else ""
        return MemoryHit(hit.id, hit.text, hit.ts, session, hit.speaker, found.scope, memory)

    with _memories(call) as memories:
        return MemoryHits(tuple(map(row, memories.search(query.q, query.limit))))


@ROUTES.post("/api/memory/undo", "Take back the last change of the memory")
def undo_memory(call: Call) -> MemoryChange:
    """Take back the newest change of both scopes, and return the change that did it."""
    with _memories(call) as memories:
        done = memories.undo()
    if done is None:
        raise Refusal(409, "nothing_to_undo", "no change of the memory is left to take back")
    return _change(*done)


@ROUTES.post("/api/memory/reflect", "Reflect on the news of the sessions now")
async def reflect_now(call: Call) -> Reflected:
    """Let the model read the news of finished sessions. The answer comes when it has read them, at most ten."""
    from lmagent.app.reflecting import reflect

    with _changing():
        report = await reflect(call.gateway.host)
    stored, pinned = (tuple(_row(entry, "workspace") for entry in rows) for rows in (report.stored, report.pinned))
    refused = tuple(_refused(row, "workspace") for row in report.refused)
    return Reflected(report.sessions, report.left, stored, pinned, refused, tuple(report.failed))


@ROUTES.post("/api/memory/entries/{id}", "Change or pin a memory")
def change_memory(call: Call, body: MemoryEdit) -> MemoryRow:
    """Change a memory's text, or pin it. A changed text gives the memory another id."""
    with _found(call) as (_, memory, entry):
        if body.text is not None:
            entry = memory.edit(entry.id, body.text)
        if body.pinned is not None:
            entry = memory.pin(entry.id, pinned=body.pinned)
        return _row(entry, memory.scope)


@ROUTES.delete("/api/memory/entries/{id}", "Forget a memory")
def forget_memory(call: Call) -> MemoryRow:
    """Remove a memory. Reflection and the model cannot store it again; undo brings it back."""
    with _found(call) as (_, memory, entry):
        return _row(memory.forget(entry.id), memory.scope)


@ROUTES.get("/api/memory/entries/{id}/why", "Where a memory is from")
def explain_memory(call: Call) -> Why:
    """Return a memory's author, its changes, and the messages that it was concluded from."""
    with _found(call) as (memories, memory, entry):
        changes = tuple(_change(memory, operation) for operation in history(memory, entry.id))
        evidence = tuple(EvidenceRow(*row) for row in evidence_of(entry, memories.event_text))
        return Why(_row(entry, memory.scope), str(memory.folder.root / entry.file), changes, evidence)


# --- opening ----------------------------------------------------------------------------------------------------------


@contextmanager
def _memories(call: Call) -> Generator[Memories]:
    """Open the memories, in a thread."""
    host = call.gateway.host
    with closing(open_memories(host.workspace, host.settings, host.clock)) as memories, _changing():
        yield memories


@contextmanager
def _found(call: Call) -> Generator[tuple[Memories, MemoryScope, MemoryEntry]]:
    """Find the memory that the path names."""
    with _memories(call) as memories:
        try:
            memory, entry = memories.find(call.path["id"])
        except StoreError as error:
            raise Refusal(404, "not_found", error.message, fix="GET /api/memory lists them") from None
        yield memories, memory, entry


@contextmanager
def _changing() -> Generator[None]:
    with refusing(MemoryRefused, 422, "refused"), refusing(StoreError, 409, "not_written"):
        yield


# --- rows -------------------------------------------------------------------------------------------------------------


def _row(entry: MemoryEntry, scope: Scope) -> MemoryRow:
    proposed = entry.by == "reflection" and not entry.is_pinned and not entry.replaced
    same = ("id", "text", "kind", "by", "at", "replaced", "file")
    facts: dict[str, Any] = {name: getattr(entry, name) for name in same}
    return MemoryRow(**facts, pinned=entry.is_pinned, proposed=proposed, scope=scope)


def _refused(row: Refused, scope: Scope) -> RefusedRow:
    return RefusedRow(row.at, row.text, row.reason, scope)


def _change(memory: MemoryScope, operation: Operation) -> MemoryChange:
    removed = tuple(change.before.text for change in operation.changes if change.before is not None)
    added = tuple(change.after.text for change in operation.changes if change.after is not None)
    return MemoryChange(operation.what, memory.scope, operation.at, removed, added)
