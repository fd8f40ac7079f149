"""Purge: removes a text for good: from the files, the journal, the index and the sessions' logs.

`forget` keeps the text in the journal, so that `undo` can bring it back. This does not. In logs and other files the
text is masked in place, byte for byte, so that every line stays readable.
"""

from __future__ import annotations

import json
import mmap
import os
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
from msgspec import Struct

from lmagent.core.errors import ConfigError
from lmagent.memory.entries import Change, entry_id
from lmagent.memory.folder import FORGOTTEN, JOURNAL, REFUSED, Done, MemoryFolder
from lmagent.memory.memory import INDEX, Memories, Memory
from lmagent.store.lock import hold
from lmagent.store.log import LOCK

SHORTEST = 4  # characters: a shorter text would be masked in half of all words
PIECES = re.compile(r"\S+")


class Purged(Struct, frozen=True):
    """The files in which a text was masked, and how often."""

    files: int
    places: int


def purge(memories: Memories, text: str, sessions: Path) -> Purged:
    """Remove a text from everything that lmagent keeps of the workspace and the user.

    Args:
        sessions: the folder of the workspace's sessions; those with the text are locked meanwhile.

    Raises:
        ConfigError: the text is too short.
        SessionBusy: a session that has the text is open.
        StoreError: a file cannot be changed.
    """
    words = PIECES.findall(text)
    if len("".join(words)) < SHORTEST:
        raise ConfigError(f"{text!r} is too short to be purged", fix="name the whole memory")
    pattern = pattern_of(words)
    for memory in memories.scopes.values():
        memory.folder.check_links()
    roots = [memory.folder.root for memory in memories.scopes.values()]
    found = list(_holding((sessions.parent, *roots), pattern))
    with ExitStack() as locks:
        for session in sorted({path.relative_to(sessions).parts[0] for path in found if path.is_relative_to(sessions)}):
            locks.callback(hold(sessions / session / LOCK, session).release)
        for memory in memories.scopes.values():
            if memory.folder.root.is_dir():
                _purge_scope(memory, pattern, text)
        places = sum(_mask(path, pattern) for path in found if path.exists())
    return Purged(len(found), places)


def pattern_of(words: list[str]) -> re.Pattern[bytes]:
    """Return a pattern of a text in any file of ours: as UTF-8 or as JSON, with any blanks between its words."""
    parts = [b"(?:" + b"|".join(sorted({re.escape(form) for form in _forms(word)})) + b")" for word in words]
    return re.compile(rb"(?:\s|\\[nrt])+".join(parts), re.IGNORECASE)


def _forms(word: str) -> Iterator[bytes]:
    yield word.encode("utf-8", "surrogatepass")
    yield json.dumps(word)[1:-1].encode()
    yield json.dumps(word, ensure_ascii=False)[1:-1].encode("utf-8", "surrogatepass")


def _holding(roots: tuple[Path, ...], pattern: re.Pattern[bytes]) -> Iterator[Path]:
    """Yield the regular files below the folders that hold the text; databases have a way of their own."""
    for root in roots:
        for folder, _, names in os.walk(root):
            for name in names:
                path = Path(folder, name)
                if not name.startswith(INDEX) and not path.is_symlink() and path.is_file() and _count(path, pattern):
                    yield path


def _count(path: Path, pattern: re.Pattern[bytes]) -> int:
    if path.stat().st_size == 0:
        return 0
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return sum(1 for _ in pattern.finditer(content))


def _mask(path: Path, pattern: re.Pattern[bytes]) -> int:
    """Overwrite the text in a file; return how often. A database that can be built again is deleted instead."""
    places = _count(path, pattern)
    if path.name.startswith("state.db"):
        for other in path.parent.glob("state.db*"):
            other.unlink(missing_ok=True)
    elif places:
        with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as content:
            for found in list(pattern.finditer(content)):
                content[found.start() : found.end()] = b"*" * (found.end() - found.start())
            content.flush()
    return places


def _purge_scope(memory: Memory, pattern: re.Pattern[bytes], text: str) -> None:
    """Remove the text's entries from the files, and the lines that have it from the journal and the refusals."""
    folder = memory.folder
    memory.purge_index(lambda stored: pattern.search(stored.encode()) is not None)
    with folder.locked():
        gone = [entry for entry in folder.entries() if pattern.search(entry.text.encode())]
        if gone:
            folder.apply("purge", [Change(entry, None) for entry in gone])
        folder.rewrite(
            FORGOTTEN, "".join(f"{id}\n" for id in sorted({*folder.forgotten(), entry_id(text), *(e.id for e in gone)}))
        )
        _without(folder, JOURNAL, pattern)
        _without(folder, REFUSED, pattern)


def _without(folder: MemoryFolder, file: str, pattern: re.Pattern[bytes]) -> None:
    lines = folder.read_bytes(file).splitlines(keepends=True)
    kept = [line for line in lines if not pattern.search(line)]
    if file == JOURNAL:
        kept.append(msgspec.json.encode(Done("purge")) + b"\n")
    if kept != lines:
        folder.rewrite(file, b"".join(kept).decode())
