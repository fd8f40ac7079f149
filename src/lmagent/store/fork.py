"""Copies of logs, and the log of a conversation that begins anew under its session's id.

The new log is numbered from the last event of the old one. So a client that has seen the old log up to some event, and
asks for later ones, gets the whole new log.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from pathlib import Path
from typing import BinaryIO

from lmagent.core.errors import SessionNotFound, StoreError
from lmagent.core.events import SessionCreated, SessionForked
from lmagent.core.ports import Clock
from lmagent.store.blobs import link_blobs
from lmagent.store.files import (
    FILE_MODE,
    OPEN_FLAGS,
    make_private,
    replace_whole,
    store_error,
    sync_file,
    sync_folder,
    write_whole,
)
from lmagent.store.follow import last_seq
from lmagent.store.lock import hold
from lmagent.store.log import BLOBS, EVENTS, LOCK, stamp
from lmagent.store.scan import in_order, lines

NAMED = re.compile(rb'(?:artifact:|")([0-9a-f]{12})')
"""How a line names a blob, by the beginning of its hash; ids of events look alike, and name none."""


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
            named.update(NAMED.findall(line.raw))
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


def begin_anew(folder: Path, aside: Path, opening: SessionCreated, clock: Clock) -> None:
    """Keep a session's log as the session `aside`, and put a new one in its place, atomically.

    The new log continues the numbers of the old one. A process killed in between leaves the session unchanged, and
    perhaps a copy of it. Raises SessionNotFound, SessionBusy or StoreError.
    """
    try:
        lock = hold(folder / LOCK, folder.name)
        try:
            fork_log(folder, aside, None, clock, moved=True)
            _, line = stamp(opening, last_seq(folder / EVENTS) + 1, clock)
            replace_whole(folder / EVENTS, folder / f"{EVENTS}.new", line)
            shutil.rmtree(folder / BLOBS, ignore_errors=True)  # the copy has the blobs that it needs
        finally:
            lock.release()
    except FileNotFoundError:
        raise SessionNotFound(f"there is no session {folder.name}", terminal="lmagent sessions list") from None
    except OSError as error:
        raise store_error(error, f"session {folder.name} could not be begun anew", folder) from error
