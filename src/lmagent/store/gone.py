"""Gone: how far the logs of deleted sessions counted.

A session may be begun under the name of one that was deleted. Its events are numbered on behind the old one's last, so
that nobody who comes back with a `seq` of that one mixes two logs, or misses the beginning of the new one.
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
"""Above this nothing is believed: the file can come with a checkout, and a page counts exactly up to 2^53 only."""

_FLAGS = OPEN_FLAGS | getattr(os, "O_NONBLOCK", 0)
"""A pipe in its place holds nobody up."""


class DeletedSession(Struct, frozen=True):
    """A session that was deleted, and its last event."""

    session: str
    seq: int


def note_gone(root: Path, session: str, seq: int) -> None:
    """Note that a session is about to be deleted.

    Args:
        root: the folder of the sessions.
        session: its id.
        seq: its last event.

    Raises:
        OSError: it could not be written.
    """
    fd = os.open(root.parent / GONE, os.O_WRONLY | os.O_CREAT | os.O_APPEND | _FLAGS, FILE_MODE)
    try:
        write_whole(fd, msgspec.json.encode(DeletedSession(session, seq)) + b"\n")
        sync_file(fd)
    finally:
        os.close(fd)


def last_gone(root: Path, session: str) -> int:
    """The last event of the sessions of a name that were deleted; 0 where there was none."""
    try:
        with open(os.open(root.parent / GONE, os.O_RDONLY | _FLAGS), "rb") as stream:
            content = stream.read() or b""
    except OSError:
        return 0
    last, named = 0, f'"{session}"'.encode()
    for line in content.splitlines() if named in content else ():
        with suppress(ValueError):  # half a line, of a disk that was full
            gone = decode_json(line, DeletedSession)
            if gone.session == session and last < gone.seq < HIGHEST:
                last = gone.seq
    return last
