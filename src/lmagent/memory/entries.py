"""Entries: one memory is one line of a Markdown file, with a comment at its end that says where it is from.

    - The user prefers tabs. <!-- preference by user 2026-11-27T16:50:02Z from 20261127_165002_3f2a9c#4 -->

An entry's id is the hash of its text, so storing a text twice is one entry, and a line that the user wrote by hand has
an id as well.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Literal, get_args

from msgspec import Struct

PINNED = "MEMORY.md"  # in every prompt of new sessions
USER = "USER.md"  # the same, about the user
NOTES = "notes"  # the folder of daily notes

LAST = 253_000_000_000.0  # Unix time in the year 9987: later ones have no calendar in every time zone

FactKind = Literal["fact", "preference", "decision", "learning"]
Kind = Literal[FactKind, "reflection"]
By = Literal["user", "model", "reflection", "import", "hand"]

_ENTRY = re.compile(r"[-*] +(?P<text>.+?)(?: +<!-- (?P<origin>[^<>]*) -->)?\s*")
_ORIGIN = re.compile(
    r"(?P<kind>\w+) by (?P<by>\w+) (?P<at>\S+)"
    r"(?: from (?P<evidence>\S+(?:, \S+)*))?(?: replaced by (?P<replaced>m-\w+))?"
)


class MemoryEntry(Struct, frozen=True):
    """One memory.

    Attributes:
        file: the file that holds it, relative to the scope's folder.
        by: its author; `hand` if the line has no comment.
        at: Unix time at which it was stored; 0 if unknown.
        evidence: the events that it was concluded from, as `SESSION#SEQ`.
        replaced: the id of the entry that contradicts it; empty while it holds.
    """

    text: str
    file: str
    kind: Kind = "fact"
    by: By = "hand"
    at: float = 0.0
    evidence: tuple[str, ...] = ()
    replaced: str = ""

    @property
    def id(self) -> str:
        return entry_id(self.text)

    @property
    def is_pinned(self) -> bool:
        return self.file in (PINNED, USER)

    @property
    def line(self) -> str:
        """Return the line of the file."""
        if self.by == "hand" and not self.replaced:
            return f"- {self.text}"
        origin = f"{self.kind} by {self.by} {_written(self.at)}"
        origin += f" from {', '.join(self.evidence)}" if self.evidence else ""
        origin += f" replaced by {self.replaced}" if self.replaced else ""
        return f"- {self.text} <!-- {origin} -->"


def entry_id(text: str) -> str:
    """Return the id of a text. Case, blanks and a full stop at the end make no difference."""
    plain = one_line(text).casefold().rstrip(".")
    return f"m-{hashlib.sha256(plain.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}"


def one_line(text: str) -> str:
    return " ".join(text.split())


def parse_line(line: str, file: str) -> MemoryEntry | None:
    """Return the entry in a line of a file; None for headings, prose and empty lines."""
    found = _ENTRY.fullmatch(line)
    if found is None:
        return None
    origin = _ORIGIN.fullmatch(found["origin"] or "")
    if origin is None or origin["kind"] not in get_args(Kind) or origin["by"] not in get_args(By):
        return MemoryEntry(one_line(found["text"]), file)
    evidence = tuple((origin["evidence"] or "").split(", ")) if origin["evidence"] else ()
    kind, by = origin["kind"], origin["by"]
    return MemoryEntry(one_line(found["text"]), file, kind, by, _read(origin["at"]), evidence, origin["replaced"] or "")  # pyright: ignore[reportArgumentType]


def parse(text: str, file: str) -> Iterator[MemoryEntry]:
    """Yield the entries of a file, each id once."""
    known = set[str]()
    for line in text.splitlines():
        if (entry := parse_line(line, file)) is not None and entry.id not in known:
            known.add(entry.id)
            yield entry


def note_file(at: float) -> str:
    """Return the daily note of a time, by the local calendar."""
    return f"{NOTES}/{datetime.fromtimestamp(at).astimezone():%Y-%m-%d}.md"


class EntryChange(Struct, frozen=True):
    """One changed entry: added without `before`, removed without `after`."""

    before: MemoryEntry | None = None
    after: MemoryEntry | None = None

    @property
    def reverse(self) -> EntryChange:
        return EntryChange(self.after, self.before)


def changed(text: str, file: str, changes: Iterable[EntryChange]) -> str:
    """Return the text of a file after the changes that concern it. Applying them twice does no more than once."""
    lines = text.splitlines()
    for change in changes:
        old, new = change.before, change.after
        same = _lines_of(lines, old) if old is not None and old.file == file else []
        for number in reversed(same[1:]):  # the user wrote it twice
            del lines[number]
        added = new if new is not None and new.file == file else None
        if same and (added is None or added.line != lines[same[0]].rstrip()):
            lines[same[0] : same[0] + 1] = [added.line] if added is not None else []
        elif not same and added is not None and not _lines_of(lines, added):
            lines += [added.line] if lines else [*_heading(file), added.line]
    return "\n".join((*lines, ""))


def _lines_of(lines: list[str], entry: MemoryEntry) -> list[int]:
    found = (parse_line(line, entry.file) for line in lines)
    return [number for number, other in enumerate(found) if other is not None and other.id == entry.id]


def _heading(file: str) -> tuple[str, str]:
    titles = {PINNED: "What lmagent remembers", USER: "About the user"}
    return f"# {titles.get(file, file.removeprefix(f'{NOTES}/').removesuffix('.md'))}", ""


def _written(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _read(written: str) -> float:
    try:
        at = datetime.strptime(written, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return 0.0
    return at if 0 <= at < LAST else 0.0
