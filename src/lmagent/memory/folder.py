"""Folder: the files of one scope. They are the truth; every change is in the journal before it is in them.

    MEMORY.md, USER.md        the pinned part, at most 4 kB each
    notes/YYYY-MM-DD.md       daily notes
    changes.jsonl             the journal: one change a line, and one line when it is in the files
    forgotten                 ids that reflection and the model may not store again
    refused.jsonl             texts that were not stored, and why

A crash between the journal and the files is finished by the next process that opens the folder for a change.
"""

from __future__ import annotations

import os
import re
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from lmagent.core.decoding import decode_json
from lmagent.core.errors import StoreError
from lmagent.core.ids import new_id
from lmagent.core.ports import Clock
from lmagent.memory.entries import LAST, NOTES, PINNED, USER, EntryChange, MemoryEntry, changed, parse
from lmagent.store.files import append_lines, make_private, read_regular, replace_whole, store_error
from lmagent.store.lock import locked

LARGEST = 1 << 20  # bytes of a file of memories; a larger one was not written as memories
PINNED_BYTES = 4000  # of each pinned file, since each byte is in every prompt

JOURNAL, FORGOTTEN, REFUSED = "changes.jsonl", "forgotten", "refused.jsonl"

Row = TypeVar("Row")

_FILE = re.compile(rf"{re.escape(PINNED)}|{re.escape(USER)}|{NOTES}/[^/\0]+\.md")


class Operation(Struct, frozen=True, omit_defaults=True):
    """One change of the memory, which can be undone as a whole.

    Attributes:
        what: the verb, such as store or forget.
        forgot: ids that may not be stored again; `recalled` lifts that.
        run: shared by the operations that are undone together; empty if this one is undone by itself.
        undoes: the key of the operation that this one reverses.
    """

    id: str
    at: float
    what: str
    changes: tuple[EntryChange, ...] = ()
    forgot: tuple[str, ...] = ()
    recalled: tuple[str, ...] = ()
    run: str = ""
    undoes: str = ""

    @property
    def key(self) -> str:
        return self.run or self.id

    def __post_init__(self) -> None:
        """Raise ValueError for what this program never writes: a stranger's journal must lead no write elsewhere."""
        for entry in (entry for change in self.changes for entry in (change.before, change.after) if entry):
            if not (_FILE.fullmatch(entry.file) and 0 <= entry.at < LAST and len(entry.line.splitlines()) == 1):
                raise ValueError(f"no memory of this folder: {entry.file}")


class DoneMark(Struct, frozen=True):
    """The journal's line after an operation is in the files."""

    done: str


class Refused(Struct, frozen=True):
    """A text that was not stored, or not pinned; `text` is empty if it may hold a secret, or hides something."""

    at: float
    reason: str
    text: str
    evidence: tuple[str, ...] = ()


class MemoryFolder:
    """The files of one scope; `problems` names those that could not be read at the last look."""

    def __init__(self, root: Path, clock: Clock) -> None:
        self.root = root
        self.problems: list[str] = []
        self._clock = clock

    # --- reading ----------------------------------------------------------------------------------------------------

    def files(self) -> list[str]:
        """Return the existing files, the pinned ones first, then the notes by date."""
        try:
            names = os.listdir(self.root / NOTES)
        except OSError:
            names = []
        notes = sorted(name for name in names if name.endswith(".md") and name.isprintable())
        pinned = [name for name in (PINNED, USER) if os.path.lexists(self.root / name)]
        return [*pinned, *(f"{NOTES}/{name}" for name in notes)]

    def entries(self) -> list[MemoryEntry]:
        """Return all entries; a file that cannot be read is left out and named in `problems`."""
        self.problems = []
        found = list[MemoryEntry]()
        for file in self.files():
            try:
                found += self.entries_of(file)
            except StoreError as problem:
                self.problems.append(str(problem))
        return found

    def entries_of(self, file: str) -> list[MemoryEntry]:
        return list(parse(self.read(file), file))

    def pinned(self) -> list[MemoryEntry]:
        """Return the entries of the pinned files that hold; a file that cannot be read is left out."""
        found = list[MemoryEntry]()
        for file in (USER, PINNED):
            with suppress(StoreError):
                found += live(self.entries_of(file))
        return found

    def read(self, file: str) -> str:
        """Return the text of a file; empty if it does not exist. Raise StoreError if it is no plain, small file."""
        content = self.read_bytes(file, LARGEST + 1)
        if len(content) > LARGEST:
            raise _unreadable(self.root / file, f"it is larger than {LARGEST >> 20} MB")
        try:
            return content.decode()
        except UnicodeDecodeError:
            raise _unreadable(self.root / file, "it is no UTF-8 text") from None

    def read_bytes(self, file: str, most: int = -1) -> bytes:
        """Return a file's content, or its first `most` bytes; empty if it does not exist. Raise StoreError."""
        path = self.root / file
        self.check_links()
        try:
            return read_regular(path, most)
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise _unreadable(path, error.strerror or "it is a link") from None

    def forgotten(self) -> set[str]:
        return set(self.read(FORGOTTEN).split())

    def refused(self) -> list[Refused]:
        """Return the texts that were not stored, oldest first."""
        return self._rows(REFUSED, Refused)

    def operations(self) -> list[Operation]:
        """Return the operations of the journal, oldest first."""
        return self._rows(JOURNAL, Operation)

    def _rows(self, file: str, kind: type[Row]) -> list[Row]:
        lines = self.read_bytes(file).splitlines()
        return [row for line in lines if (row := _decoded(line, kind)) is not None]

    # --- changing ---------------------------------------------------------------------------------------------------

    @contextmanager
    def locked(self) -> Generator[None]:
        """Change the files alone; an operation that a crash cut off is finished first. Raise StoreError."""
        self.check_links()
        with locked(self.root / "lock", f"another process changes the memory in {self.root}"):
            try:
                make_private(self.root / NOTES)
                self._finish()
                yield
            except OSError as error:
                raise store_error(error, "the memory could not be changed", self.root) from error

    def apply(self, what: str, changes: Sequence[EntryChange], **more: Any) -> Operation:
        """Record an operation and carry it out, with the folder locked.

        Raises StoreError: a pinned file would be too long, or the disk refused.
        """
        operation = Operation(new_id(), self._clock.now(), what, tuple(changes), **more)
        self._carry_out(operation, dry=True)
        self.append(JOURNAL, operation)
        self._carry_out(operation)
        self.append(JOURNAL, DoneMark(operation.id))
        return operation

    def undoable(self) -> Operation | None:
        """Return the last change that was not reversed, with all operations of its run; None if all are."""
        operations = self.operations()
        gone = {operation.undoes for operation in operations}
        left = [one for one in operations if not one.undoes and one.key not in gone]
        if not left:
            return None
        same = [one for one in left if one.key == left[-1].key]
        changes = tuple(change for one in same for change in one.changes)
        return msgspec.structs.replace(left[-1], changes=changes)

    def undo(self) -> Operation | None:
        """Reverse the last change that was not reversed, with the folder locked; None if all are."""
        if (operation := self.undoable()) is None:
            return None
        back = tuple(change.reverse for change in reversed(operation.changes))
        forgot = operation.recalled
        if operation.what == "reflect":  # it would only propose the same again
            forgot += tuple(change.after.id for change in operation.changes if change.after is not None)
        return self.apply("undo", back, forgot=forgot, recalled=operation.forgot, undoes=operation.key)

    def rewrite(self, file: str, text: str) -> None:
        """Replace a file's content, with the folder locked."""
        path = self.root / file
        replace_whole(path, path.with_name(f".{path.name}.new"), text.encode())

    def append(self, file: str, row: Struct) -> None:
        """Append one line of JSON, on the disk when this returns."""
        append_lines(self.root / file, msgspec.json.encode(row) + b"\n")

    def check_links(self) -> None:
        """Raise StoreError if a folder is a link: a workspace of a stranger must lead nothing elsewhere."""
        if self.root.parent.name == ".lmagent" and self.root.parent.is_symlink():
            raise _unreadable(self.root.parent, "it is a link")
        for name in ("", NOTES, "index.db", "index.db-wal", "index.db-shm"):
            if os.path.islink(self.root / name):
                raise _unreadable(self.root / name, "it is a link")

    def _finish(self) -> None:
        """Carry out the last operation if a crash came before its end."""
        last = self.read_bytes(JOURNAL).splitlines()[-1:]
        if last and (operation := _decoded(last[0], Operation)) is not None:
            self._carry_out(operation)
            self.append(JOURNAL, DoneMark(operation.id))

    def _carry_out(self, operation: Operation, *, dry: bool = False) -> None:
        """Bring an operation into the files; `dry` only checks that it fits."""
        entries = (entry for change in operation.changes for entry in (change.before, change.after) if entry)
        for file in dict.fromkeys(entry.file for entry in entries):
            before = self.read(file)
            after = changed(before, file, operation.changes)
            size = len(after.encode())
            if dry and file in (PINNED, USER) and size > max(PINNED_BYTES, len(before.encode())):
                raise StoreError(
                    f"{self.root / file} would have {size:,} bytes, more than {PINNED_BYTES:,}",
                    fix="shorten it, or forget something in it: each byte is in every prompt",
                )
            if not dry and after != before:
                self.rewrite(file, after)
        if not dry and (operation.forgot or operation.recalled):
            known = (self.forgotten() | set(operation.forgot)) - set(operation.recalled)
            self.rewrite(FORGOTTEN, "".join(f"{id}\n" for id in sorted(known)))


def _decoded(line: bytes, kind: type[Row]) -> Row | None:
    """Return a row; None for a torn line, or a line of another type."""
    try:
        return decode_json(line, kind)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None


def _unreadable(path: Path, why: str) -> StoreError:
    return StoreError(f"{path} is not read: {why}", fix=f"put a regular file or folder in its place: ls -ld {path}")


def live(entries: Iterable[MemoryEntry]) -> list[MemoryEntry]:
    """Return the entries that hold."""
    return [entry for entry in entries if not entry.replaced]
