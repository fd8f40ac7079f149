"""Purge: removes a text for good: from the files, the journal, the index and the sessions' logs.

`forget` keeps the text in the journal, so that `undo` can bring it back. This does not. In logs and other files the
text is masked in place, byte for byte, so that every line stays readable.
"""

from __future__ import annotations

import mmap
import os
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec

from lmagent.core.decoding import decode_json
from lmagent.core.errors import ConfigError
from lmagent.core.events import decode
from lmagent.core.plurals import plural
from lmagent.memory.entries import EntryChange, entry_id
from lmagent.memory.folder import FORGOTTEN, JOURNAL, REFUSED, DoneMark, MemoryFolder
from lmagent.memory.memory import INDEX, Memories, MemoryScope
from lmagent.store.lock import hold
from lmagent.store.log import LOCK

SHORTEST = 4  # characters: a shorter text would be masked in half of all words
LISTED = 20  # sessions that an error names
HEAD = 40  # characters of the beginning that are masked too where a summary or a hit was cut after them

PIECES = re.compile(r"\S+")

_BLANKS = rb"(?:\s|\\+[nrt])+"
_CUT = re.compile(rb"\\*[\"']|\s*\xe2\x80\xa6|\\+u2026")  # what follows on a text that was cut


def purge(
    memories: Memories, text: str, elsewhere: Callable[[Callable[[bytes], bool]], list[str]] = lambda _: []
) -> int:
    """Remove a text from everything that lmagent keeps of the workspace and the user; return how many files had it.

    Sessions with the text are locked meanwhile.

    Args:
        elsewhere: returns the sessions that are not in files and hold a text; such sessions must be deleted before.

    Raises:
        ConfigError: the text is too short, or a session that is not in files has it.
        SessionBusy: a session that has the text is open.
        StoreError: a file cannot be changed.
    """
    if len("".join(PIECES.findall(text))) < SHORTEST:
        raise ConfigError(f"{text!r} is too short to be purged", fix="name the whole memory")
    pattern = TextPattern(text)
    if sessions := elsewhere(pattern.is_in):
        there = f"the text is in {plural(len(sessions), 'session')} of the cluster's database"
        fix = f"lmagent sessions rm {' '.join(sessions[:LISTED])}{' …' * (len(sessions) > LISTED)}; then purge it again"
        raise ConfigError(f"{there}, where it cannot be masked; nothing was changed", fix=fix)
    for memory in memories.scopes.values():
        memory.folder.check_links()
    roots = [memory.folder.root for memory in memories.scopes.values()]
    home = memories.scopes["workspace"].folder.root.parent
    logs = home / "sessions"
    found = list(_holding((home, *roots), pattern))
    if any(path.suffix == ".jsonl" and _breaks(path, pattern) for path in found):
        raise ConfigError(f"{text!r} is a part of how logs are written", fix="name more of the text")
    with ExitStack() as locks:
        for session in sorted({path.relative_to(logs).parts[0] for path in found if path.is_relative_to(logs)}):
            locks.callback(hold(logs / session / LOCK, session).release)
        # The memory itself goes last: after a crash its id still names it.
        first = [path for path in found if not any(path.is_relative_to(root) for root in roots)]
        for path in first:
            _mask(path, pattern)
        for memory in memories.scopes.values():
            if memory.folder.root.is_dir():
                _purge_scope(memory, pattern, text)
        for path in found:
            if path not in first:
                _mask(path, pattern)
    return len(found)


class TextPattern:
    """Finds a text in any file of ours: plain, or in JSON within JSON, with any blanks between its words."""

    def __init__(self, text: str) -> None:
        words = PIECES.findall(text)
        pieces = [piece for word in words for piece in (_BLANKS, *map(_piece, word))][1:]
        self._head = re.compile(b"".join(pieces[:HEAD]), re.IGNORECASE)
        self._rest = [re.compile(piece, re.IGNORECASE) for piece in pieces[HEAD:]]

    def find(self, content: bytes | bytearray | mmap.mmap) -> Iterator[tuple[int, int]]:
        """Yield the beginning and the end of each place, also of those that were cut."""
        for found in self._head.finditer(content):
            end = found.end()
            for piece in self._rest:
                if (more := piece.match(content, end)) is None:
                    if _CUT.match(content, end) is not None:
                        yield found.start(), end
                    break
                end = more.end()
            else:
                yield found.start(), end

    def is_in(self, content: bytes | mmap.mmap) -> bool:
        return next(self.find(content), None) is not None


def _piece(character: str) -> bytes:
    """Return a pattern of one character, as itself or escaped by JSON, however often."""
    plain = re.escape(character.encode("utf-8", "surrogatepass"))
    if character.isascii() and character.isalnum():
        return plain
    if character == "\\":
        return rb"\\+"
    units = character.encode("utf-16-be", "surrogatepass").hex()
    escaped = b"".join(rb"\\+u" + units[at : at + 4].encode() for at in range(0, len(units), 4))
    return rb"(?:\\*" + plain + b"|" + escaped + b")"


def _holding(roots: tuple[Path, ...], pattern: TextPattern) -> Iterator[Path]:
    """Yield the regular files below the folders that hold the text; databases have a way of their own."""
    for root in roots:
        for folder, _, names in os.walk(root):
            for name in names:
                path = Path(folder, name)
                if not name.startswith(INDEX) and not path.is_symlink() and path.is_file() and _holds(path, pattern):
                    yield path


def _holds(path: Path, pattern: TextPattern) -> bool:
    if path.stat().st_size == 0:
        return False
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return pattern.is_in(content)


def _breaks(path: Path, pattern: TextPattern) -> bool:
    """Return whether masking would change more than texts in a file of JSON lines."""
    for line in path.read_bytes().splitlines():
        masked = bytearray(line)
        _overwrite(masked, pattern)
        if bytes(masked) != line and _meaning(bytes(masked)) != _meaning(line):
            return True
    return False


def _overwrite(content: bytearray | mmap.mmap, pattern: TextPattern) -> None:
    for start, end in list(pattern.find(content)):
        content[start:end] = b"*" * (end - start)


def _meaning(line: bytes) -> object:
    """Return the fields of a line and, of an event, its type and place; None for a damaged line."""
    try:
        fields = list(decode_json(line, dict[str, Any]))
    except msgspec.DecodeError:
        return None
    try:
        event = decode(line)
    except msgspec.DecodeError:
        return fields
    return fields, type(event), event.id, event.seq


def _mask(path: Path, pattern: TextPattern) -> None:
    """Overwrite the text in a file that still exists; a database that can be built again is deleted instead."""
    if path.name.startswith("state.db"):
        for other in path.parent.glob("state.db*"):
            other.unlink(missing_ok=True)
    elif path.exists() and path.stat().st_size:
        with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as content:
            _overwrite(content, pattern)
            content.flush()


def _purge_scope(memory: MemoryScope, pattern: TextPattern, text: str) -> None:
    """Remove the text's entries from the files, and the lines that have it from the journal and the refusals."""
    folder = memory.folder
    memory.purge_index(lambda stored: pattern.is_in(stored.encode()))
    with folder.locked():
        gone = [entry for entry in folder.entries() if pattern.is_in(entry.text.encode())]
        if gone:
            folder.apply("purge", [EntryChange(entry, None) for entry in gone])
        folder.rewrite(
            FORGOTTEN, "".join(f"{id}\n" for id in sorted({*folder.forgotten(), entry_id(text), *(e.id for e in gone)}))
        )
        _without(folder, JOURNAL, pattern)
        _without(folder, REFUSED, pattern)


def _without(folder: MemoryFolder, file: str, pattern: TextPattern) -> None:
    lines = folder.read_bytes(file).splitlines(keepends=True)
    kept = [line for line in lines if not pattern.is_in(line)]
    if file == JOURNAL:
        kept.append(msgspec.json.encode(DoneMark("purge")) + b"\n")
    if kept != lines:
        folder.rewrite(file, b"".join(kept).decode())
