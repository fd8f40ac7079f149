"""Anew: a new log replaces a session's old one, which stays on record under another id.

The new log's events are numbered from the old one's last. So a reader that has seen the old log up to any event, and
asks for later ones, gets the whole new log and nothing else, beginning with the event that says so.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from lmagent.core.errors import SessionNotFound
from lmagent.core.events import SessionCreated
from lmagent.core.ports import Clock
from lmagent.store.files import replace_whole, store_error
from lmagent.store.follow import last_seq
from lmagent.store.fork import fork_log, take_away
from lmagent.store.lock import hold
from lmagent.store.log import BLOBS, EVENTS, LOCK, JsonlLog, stamp


def begin_anew(folder: Path, aside: Path, opening: SessionCreated, clock: Clock) -> JsonlLog:
    """Put a session's log aside and a new one in its place, atomically.

    A process killed in between leaves the session unchanged, and perhaps a copy of it. The lock is held throughout and
    passes to the new log, so no other process can open the session in between.

    Raises SessionNotFound, SessionBusy or StoreError.

    Args:
        folder: of the session.
        aside: of the session for the old log; it must not exist.
        opening: the first event of the new log, which names `aside`.
        clock: gives events their time.
    """
    try:
        lock = hold(folder / LOCK, folder.name)
        try:
            fork_log(folder, aside, None, clock, moved=True)
            old = os.stat(folder / EVENTS).st_ino
            try:
                _replace(folder, opening, clock)
            except BaseException:
                if os.stat(folder / EVENTS).st_ino == old:  # else the copy is all that there is
                    take_away(aside)
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


def _replace(folder: Path, opening: SessionCreated, clock: Clock) -> None:
    _, line = stamp(opening, last_seq(folder / EVENTS) + 1, clock)
    replace_whole(folder / EVENTS, folder / f"{EVENTS}.new", line)
