"""Copies of logs, and logs that continue the numbers of another one.

A log that replaces another one, or that a deleted session's name gets again, is numbered from the last event of the
other. So a client that has seen the other log up to some event, and asks for later ones, gets the whole new log.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from pathlib import Path
from typing import BinaryIO

import msgspec
from msgspec import Struct

from lmagent.core.decoding import decode_json
from lmagent.core.errors import SessionNotFound, StoreError
from lmagent.core.events import SessionCreated, SessionForked
from lmagent.core.ports import Clock
from lmagent.store.blobs import link_blobs
from lmagent.store.files import (
    FILE_MODE,
    OPEN_FLAGS,
    append_lines,
    make_private,
    read_regular,
    replace_whole,
    store_error,
    sync_file,
    sync_folder,
    write_whole,
)
from lmagent.store.follow import last_seq
from lmagent.store.lock import hold
from lmagent.store.log import BLOBS, EVENTS, GONE, LOCK, JsonlLog, stamp
from lmagent.store.scan import in_order, lines

_NAMED = re.compile(rb'(?:artifact:|")([0-9a-f]{12})')
"""How a line names a blob, by the beginning of its hash; ids of events look alike, and name none."""

HIGHEST = 2**48
"""Higher numbers are ignored: the file can come with a checkout, and a page counts exactly up to 2^53 only."""


def fork_log(
    source: Path, target: Path, through_seq: int | None, clock: Clock, *, moved: bool = False
) -> SessionForked:
    """Copy the events of a session up to one of them, unchanged line by line, and add an event that says so.

    The new session appears all at once: a fork that is killed half-way leaves no session. `moved`: the source is about
    to be deleted, so its events count as the copy's own. Raises SessionNotFound or StoreError.
    """
    try:
        with (source / EVENTS).open("rb") as stream:
            _refuse_existing(target)
            parents = make_private(target)
            lock = hold(target / LOCK, target.name)
            try:
                _refuse_existing(target)
                try:
                    forked = _copy(stream, source, target, through_seq, clock, moved=moved)
                    for folder in (target, *parents):
                        sync_folder(folder)
                except BaseException:
                    _take_away(target)
                    raise
            finally:
                lock.release()
    except FileNotFoundError:
        raise SessionNotFound(f"there is no session {source.name}", terminal="lmagent sessions list") from None
    except OSError as error:
        raise store_error(error, f"session {source.name} could not be copied", target / EVENTS) from error
    return forked


def _refuse_existing(target: Path) -> None:
    if (target / EVENTS).exists():
        raise StoreError(f"there is a session {target.name} already: {target}")


def _copy(
    stream: BinaryIO, source: Path, target: Path, through_seq: int | None, clock: Clock, *, moved: bool
) -> SessionForked:
    beside, last = target / f"{EVENTS}.new", 0
    named: set[bytes] = set()
    fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | OPEN_FLAGS, FILE_MODE)
    try:
        for line in in_order(lines(stream)):
            if line.kind not in ("event", "newer") or not line.whole:
                continue
            if through_seq is not None and line.seq > through_seq:
                break
            write_whole(fd, line.raw)
            last = max(last, line.seq)
            named.update(_NAMED.findall(line.raw))
        if not last:
            raise StoreError(f"session {source.name} has no event up to {through_seq}: there is nothing to copy")
        link_blobs(source / BLOBS, target / BLOBS, {name.decode() for name in named})
        event = SessionForked(session=target.name, parent=source.name, at_seq=0 if moved else last)
        forked, raw = stamp(event, last + 1, clock)
        write_whole(fd, raw)
        sync_file(fd)
    finally:
        os.close(fd)
    os.rename(beside, target / EVENTS)
    assert isinstance(forked, SessionForked)
    return forked


def _take_away(target: Path) -> None:
    """Remove a failed copy; its log, without which it is no session, goes first."""
    with contextlib.suppress(OSError):
        (target / EVENTS).unlink(missing_ok=True)
        shutil.rmtree(target)


def begin_anew(folder: Path, aside: Path, opening: SessionCreated, clock: Clock) -> JsonlLog:
    """Keep a session's log as the session `aside`, and put a new one in its place, atomically.

    A process killed in between leaves the session unchanged, and perhaps a copy of it. The lock is held throughout and
    passes to the new log. Raises SessionNotFound, SessionBusy or StoreError.
    """
    try:
        lock = hold(folder / LOCK, folder.name)
        try:
            fork_log(folder, aside, None, clock, moved=True)
            old = os.stat(folder / EVENTS).st_ino
            try:
                _, line = stamp(opening, last_seq(folder / EVENTS) + 1, clock)
                replace_whole(folder / EVENTS, folder / f"{EVENTS}.new", line)
            except BaseException:
                if os.stat(folder / EVENTS).st_ino == old:  # else the copy is all that there is
                    _take_away(aside)
                raise
            shutil.rmtree(folder / BLOBS, ignore_errors=True)  # the copy has the blobs that it needs
            return JsonlLog.open(folder, clock, lock)
        except BaseException:
            lock.release()
            raise
    except FileNotFoundError:
        raise SessionNotFound(f"there is no session {folder.name}", terminal="lmagent sessions list") from None
    except OSError as error:
        raise store_error(error, f"session {folder.name} could not be begun anew", folder) from error


class DeletedSession(Struct, frozen=True):
    session: str
    seq: int


def note_gone(root: Path, session: str, seq: int) -> None:
    """Record that a session with this last event is about to be deleted; raises OSError."""
    append_lines(root.parent / GONE, msgspec.json.encode(DeletedSession(session, seq)) + b"\n")


def last_gone(root: Path, session: str) -> int:
    """Return the last event number of deleted sessions with this name; 0 if none was deleted."""
    try:
        content = read_regular(root.parent / GONE)
    except OSError:
        return 0
    last, named = 0, f'"{session}"'.encode()
    for line in content.splitlines() if named in content else ():
        with contextlib.suppress(ValueError):  # half a line, from when the disk was full
            gone = decode_json(line, DeletedSession)
            if gone.session == session and last < gone.seq < HIGHEST:
                last = gone.seq
    return last
