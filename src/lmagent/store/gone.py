"""Gone: the last event numbers of deleted sessions.

A new session may reuse the name of a deleted one. Its events are numbered from the old one's last, so that a client
that
returns with a `seq` of the old one neither mixes two logs nor misses the beginning of the new one.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from lmagent.core.decoding import decode_json
from lmagent.store.files import FILE_MODE, OPEN_FLAGS, sync_file, write_whole
from lmagent.store.log import GONE

HIGHEST = 2**48
"""Higher numbers are ignored: the file can come with a checkout, and a page counts exactly up to 2^53 only."""

_FLAGS = OPEN_FLAGS | getattr(os, "O_NONBLOCK", 0)
"""Opening a pipe in the file's place must not block."""


class DeletedSession(Struct, frozen=True):
    session: str
    seq: int


def note_gone(root: Path, session: str, seq: int) -> None:
    """Record that a session with this last event is about to be deleted; raises OSError."""
    fd = os.open(root.parent / GONE, os.O_WRONLY | os.O_CREAT | os.O_APPEND | _FLAGS, FILE_MODE)
    try:
        write_whole(fd, msgspec.json.encode(DeletedSession(session, seq)) + b"\n")
        sync_file(fd)
    finally:
        os.close(fd)


def last_gone(root: Path, session: str) -> int:
    """Return the last event number of deleted sessions with this name; 0 if none was deleted."""
    try:
        with open(os.open(root.parent / GONE, os.O_RDONLY | _FLAGS), "rb") as stream:
            content = stream.read() or b""
    except OSError:
        return 0
    last, named = 0, f'"{session}"'.encode()
    for line in content.splitlines() if named in content else ():
        with suppress(ValueError):  # half a line, from when the disk was full
            gone = decode_json(line, DeletedSession)
            if gone.session == session and last < gone.seq < HIGHEST:
                last = gone.seq
    return last
