"""Memory: what one scope remembers, and the two scopes of a workspace together."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from itertools import zip_longest
from pathlib import Path
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from lmagent.core.errors import LmagentError, StoreError
from lmagent.core.memory import Hit, MemoryItem
from lmagent.core.ports import Clock
from lmagent.memory.entries import PINNED, USER, By, EntryChange, Kind, MemoryEntry, entry_id, note_file, one_line
from lmagent.memory.folder import PINNED_BYTES, REFUSED, MemoryFolder, Operation, Refused, live
from lmagent.memory.guard import is_secret, refusal
from lmagent.memory.logs import Logs, event_text, index_logs
from lmagent.memory.reflect import Conclusion, FactEvidence, ProposedFact, conclusion, same_as
from lmagent.memory.search.sources import SourcedIndex
from lmagent.tools.sanitize import is_hiding

Scope = Literal["workspace", "user"]
SCOPES: tuple[Scope, ...] = ("workspace", "user")

INDEX = "index.db"
BESIDE = 20  # more hits than asked for, since those of the own session are left out
ALIKE = 0.92  # cosine from which two texts mean the same


class MemoryRefused(LmagentError):
    """A text may not be remembered."""


class FoundMemory(Struct, frozen=True):
    """A hit, its scope, and the entry that it is; None for a message of a session."""

    scope: Scope
    hit: Hit
    entry: MemoryEntry | None


class Stats(Struct, frozen=True):
    """How much a scope remembers; `search` says what finds it."""

    scope: Scope
    entries: int
    pinned: int
    indexed: int
    search: str


class MemoryScope:
    """One scope: its files, and the index over them."""

    def __init__(
        self,
        scope: Scope,
        root: Path,
        clock: Clock,
        open_index: Callable[[Path], SourcedIndex],
        *,
        secrets: Collection[str] = (),
        logs: Logs | None = None,
    ) -> None:
        self.scope: Scope = scope
        self.folder = MemoryFolder(root, clock)
        self._clock = clock
        self._secrets = secrets
        self._logs = logs
        self._open_index = open_index
        self._index: SourcedIndex | None = None

    @property
    def has_anything(self) -> bool:
        """Return whether something may be found here: one look at the disk."""
        return self._logs is not None or self.folder.root.exists()

    def entries(self) -> list[MemoryEntry]:
        return self.folder.entries()

    def find(self, id: str) -> MemoryEntry:
        """Return the entry with an id, or a unique beginning of it. Raise StoreError if not exactly one has it."""
        return the_one(self.matching(id), id)

    def matching(self, id: str) -> list[MemoryEntry]:
        """Return the entries whose ids begin so."""
        wanted = id if id.startswith("m-") else f"m-{id}"
        return [entry for entry in self.entries() if entry.id.startswith(wanted)]

    def entry_of(self, hit: Hit) -> MemoryEntry | None:
        """Return the entry that a hit is; None for a message of a session."""
        if not hit.id.startswith("m-"):
            return None
        return next((entry for entry in self.folder.entries_of(hit.session) if entry.id == hit.id), None)

    # --- changing ---------------------------------------------------------------------------------------------------

    def store(
        self,
        text: str,
        *,
        by: By,
        kind: Kind = "fact",
        evidence: Sequence[str] = (),
        pinned: bool = False,
    ) -> MemoryEntry:
        """Remember a text. One that is known already stays as it is, but for being pinned.

        Raises:
            MemoryRefused: the guard refuses it, or the user has forgotten it.
            StoreError: it cannot be written.
        """
        text = one_line(text)
        file = _pinned_file(self.scope, kind) if pinned else note_file(self._clock.now())
        entry = MemoryEntry(text, file, kind, by, self._clock.now(), tuple(evidence))
        with self.folder.locked():
            self._require_allowed(text, by, evidence)
            known = next((known for known in self.entries() if known.id == entry.id), None)
            if known is not None and (known.is_pinned or not pinned) and not known.replaced:
                return known
            entry = replace(known, file=file, replaced="") if known else entry
            self.folder.apply("store", [EntryChange(known, entry)], recalled=(entry.id,) if by == "user" else ())
        return entry

    def edit(self, id: str, text: str) -> MemoryEntry:
        """Replace an entry's text; it has the id of the new text from then on."""
        text = one_line(text)
        with self.folder.locked():
            self._require_allowed(text, "user")
            old = self.find(id)
            new = replace(old, text=text, by="user", at=self._clock.now())
            twins = self._removed(new.id) if new.id != old.id else []
            self.folder.apply("edit", [*twins, EntryChange(old, new)], recalled=(new.id,))
        return new

    def pin(self, id: str, *, pinned: bool = True) -> MemoryEntry:
        """Move an entry into the part that each new session's prompt has, or out of it."""
        with self.folder.locked():
            old = self.find(id)
            if old.is_pinned == pinned:
                return old
            file = _pinned_file(self.scope, old.kind) if pinned else note_file(old.at or self._clock.now())
            new = replace(old, file=file)
            self.folder.apply("pin" if pinned else "unpin", [EntryChange(old, new)])
        return new

    def forget(self, id: str) -> MemoryEntry:
        """Remove an entry. Reflection and the model cannot store it again; `undo` brings it back."""
        with self.folder.locked():
            entry = self.find(id)
            self.folder.apply("forget", self._removed(entry.id), forgot=(entry.id,))
        return entry

    def _removed(self, id: str) -> list[EntryChange]:
        return [EntryChange(entry, None) for entry in self.entries() if entry.id == id]

    def undo(self) -> Operation | None:
        """Reverse the last change that was not undone; return None if none is left."""
        with self.folder.locked():
            return self.folder.undo()

    def conclude(self, fact: ProposedFact, proof: FactEvidence, run: str) -> tuple[MemoryEntry | None, Refused | None]:
        """Carry out a proposal of reflection, as a part of its run; return the entry, and why it was refused or not
        pinned."""
        text, now = one_line(fact.text), self._clock.now()
        with self.folder.locked():
            done = Conclusion(self._fault(text, "reflection") or proof.fault)
            if not done.fault:
                entries = {entry.id: entry for entry in self.entries()}
                alike = self.index().alike(text, ALIKE, "m-")
                same = entries.get(entry_id(text)) or same_as(text, live(entries.values()), alike)
                new = MemoryEntry(text, note_file(now), fact.kind, "reflection", now, proof.places)
                room = PINNED_BYTES - len(self.folder.read(PINNED).encode())
                done = conclusion(new, proof, same, entries.get(fact.contradicts), room)
            if done.changes:
                self.folder.apply("reflect", done.changes, run=run)
            return done.entry, self._list_refused(text, done.fault, proof.places) if done.fault else None

    def _fault(self, text: str, by: By) -> str:
        """Return why a text may not be stored; empty if it may."""
        forgotten = by != "user" and entry_id(text) in self.folder.forgotten()
        return refusal(text, by, self._secrets) or ("the user has had it forgotten" if forgotten else "")

    def _list_refused(self, text: str, reason: str, evidence: Sequence[str]) -> Refused:
        """List a text as refused; return the row. Secrets and hidden characters are not repeated in it."""
        hidden = is_secret(text, self._secrets) or is_hiding(text)
        row = Refused(self._clock.now(), reason, "" if hidden else one_line(text)[:200], tuple(evidence))
        self.folder.append(REFUSED, row)
        return row

    def _require_allowed(self, text: str, by: By, evidence: Sequence[str] = ()) -> None:
        if reason := self._fault(text, by):
            self._list_refused(text, reason, evidence)
            raise MemoryRefused(f"this is not remembered: {reason}", fix="state it as a plain fact, without secrets")

    # --- searching --------------------------------------------------------------------------------------------------

    def index(self) -> SourcedIndex:
        """Return the index, up to date with the files and the logs."""
        if self._index is None:
            self.folder.check_links()
            self._index = self._open_index(self.folder.root / INDEX)
        marks = self._index.marks()
        _index_files(self._index, self.folder, marks)
        if self._logs is not None:
            index_logs(self._index, self._logs, marks)
        for gone in marks:
            self._index.drop(gone)
        return self._index

    def event_text(self, session: str, seq: int) -> str:
        """Return what an event of a session says; empty if it is gone."""
        with suppress(StoreError):
            return event_text(self._logs.read(session, seq - 1), seq) if self._logs is not None else ""
        return ""

    def stats(self) -> Stats:
        entries = live(self.entries())
        index = self.index() if self.has_anything else None
        return Stats(
            self.scope,
            len(entries),
            sum(entry.is_pinned for entry in entries),
            index.count() if index is not None else 0,
            index.kind if index is not None else "words",
        )

    def purge_index(self, is_gone: Callable[[str], bool]) -> None:
        """Remove the texts for which `is_gone` from the index, so that no byte of them is left."""
        index = self.index()
        index.purge(index.ids_of_texts(is_gone))

    def close(self) -> None:
        if self._index is not None:
            self._index.close()
            self._index = None


def the_one(found: Sequence[MemoryEntry], id: str) -> MemoryEntry:
    """Return the first of entries that all have one id: the user may have written a text twice."""
    ids = {entry.id for entry in found}
    if len(ids) != 1 or id in ("", "m-"):
        count = "several memories have" if ids else "no memory has"
        raise StoreError(f"{count} the id {id!r}", terminal="lmagent memory list")
    return found[0]


def _index_files(index: SourcedIndex, folder: MemoryFolder, marks: dict[str, str]) -> None:
    """Bring the index up to date with the files; only those that have changed are read. Their marks are taken out."""
    for file in folder.files():
        found = (folder.root / file).lstat()
        stamp = f"{found.st_mtime_ns}:{found.st_size}:{found.st_ino}"
        if marks.pop(file, "") == stamp:
            continue
        try:
            entries = live(folder.entries_of(file))
        except StoreError:
            entries = []  # `memory list` names the file and the fault
        items = [MemoryItem(entry.id, entry.text, entry.at, file, entry.by) for entry in entries]
        index.take(file, stamp, items, whole=True)


def _pinned_file(scope: Scope, kind: Kind) -> str:
    return USER if scope == "user" and kind == "preference" else PINNED


class Memories:
    """The two scopes of a workspace."""

    def __init__(self, workspace: MemoryScope, user: MemoryScope) -> None:
        self.scopes: dict[Scope, MemoryScope] = {"workspace": workspace, "user": user}

    def search(
        self,
        query: str,
        k: int,
        *,
        scopes: Iterable[Scope] = SCOPES,
        since: float | None = None,
        until: float | None = None,
        without: str = "",
    ) -> list[FoundMemory]:
        """Return the best hits of the scopes, best first. `without`: a session whose messages are left out, since its
        model has them in its prompt."""
        query = query.encode(errors="replace").decode()
        ranked = list[list[FoundMemory]]()
        for scope in scopes:
            memory = self.scopes[scope]
            if memory.has_anything:
                hits = memory.index().search(query, k + BESIDE, since=since, until=until)
                kept = [hit for hit in hits if not (without and hit.session == without)]
                ranked.append([FoundMemory(scope, hit, memory.entry_of(hit)) for hit in kept[:k]])
        # Scores of two indexes cannot be compared, so their hits take turns.
        return [found for row in zip_longest(*ranked) for found in row if found is not None][:k]

    def find(self, id: str) -> tuple[MemoryScope, MemoryEntry]:
        """Return the scope and the entry with an id. Raise StoreError if not exactly one has it."""
        found = [(memory, entry) for memory in self.scopes.values() for entry in memory.matching(id)]
        entry = the_one([entry for _, entry in found], id)
        return next(memory for memory, other in found if other is entry), entry

    def undoable(self, only: Scope | None = None) -> tuple[MemoryScope, Operation] | None:
        """Return the newest change that was not undone, of one scope or of both; None if none is left."""
        scopes = [memory for scope, memory in self.scopes.items() if only in (None, scope)]
        found = [(memory, last) for memory in scopes if (last := memory.folder.undoable()) is not None]
        return max(found, key=lambda one: one[1].at, default=None)

    def undo(self, only: Scope | None = None) -> tuple[MemoryScope, Operation] | None:
        """Take back the change that is `undoable`; return the scope, and the operation that did it."""
        if (found := self.undoable(only)) is None or (operation := found[0].undo()) is None:
            return None
        return found[0], operation

    def event_text(self, session: str, seq: int) -> str:
        """Return what an event of a session says; empty if it is gone."""
        return self.scopes["workspace"].event_text(session, seq)

    def close(self) -> None:
        for memory in self.scopes.values():
            memory.close()
