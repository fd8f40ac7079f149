"""tree-sitter and its grammar of bash, kept from what it dies of and from what takes it seconds."""

from __future__ import annotations

import re
import time
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Language, Node

# A step of tree-sitter's error recovery, which nothing interrupts, takes 8 s for 64 KB of the worst kind.
MAX_BYTES = 16 * 1024
# Broken text of an evil kind takes tree-sitter seconds to recover from: it is opaque long before.
PARSE_SECONDS = 0.25
# Save for one step, at the end of an unfinished pipeline: nothing ends it, and it grows with the square of the length.
_MAX_PIPES = 2000
_WIDE = re.compile(rb"[\x80-\xff]")


def prepared(command: str) -> tuple[str, bytes]:
    """Why a text is not even parsed, or nothing; the bytes that are."""
    try:
        source = command.encode() if len(command) <= MAX_BYTES else b" " * (MAX_BYTES + 1)
    except UnicodeEncodeError:
        return "it is not valid UTF-8", b""
    if len(source) > MAX_BYTES:
        return f"it is longer than {MAX_BYTES // 1024} KB", b""
    if b"\x00" in source or b"\r" in source:
        return "it contains a NUL or a carriage return", b""
    if source.count(b"|") > _MAX_PIPES:
        return "it has too many pipes", b""
    if b"\\\n" in source and not re.search(rb"['#]|<<", source):
        source = re.sub(rb"(?<!\\)((?:\\\\)*)\\\n", rb"\1", source)
    # tree-sitter-bash loses the dash of `python - <<EOF`; quoted, it is the same word to bash.
    return "", re.sub(rb"(?<=[ \t])-(?=[ \t]*<<)", b"'-'", source)


@lru_cache(maxsize=1)
def _language() -> Language:
    """Imported on first use: a session that runs no shell command does not pay for it."""
    import tree_sitter
    import tree_sitter_bash

    return tree_sitter.Language(tree_sitter_bash.language())


def tree(source: bytes, deadline: float) -> Node | None:
    """The syntax tree, or None where it takes too long.

    tree-sitter-bash asks C's isalpha about code points far beyond its table and dies of it (its issue 337), so it gets
    to see ASCII only: to bash, too, all other bytes are ordinary characters of a word, as a dot is, of no name.
    """
    from tree_sitter import Parser

    text = _WIDE.sub(b".", source)

    def rest(offset: int, _point: object) -> bytes:
        return text[offset:]

    def late(_offset: int, _has_error: bool) -> bool:
        return time.perf_counter() > deadline

    try:
        # One each: the callbacks let other threads run, and they may parse as well.
        return Parser(_language()).parse(rest, progress_callback=late).root_node
    except ValueError:
        return None
