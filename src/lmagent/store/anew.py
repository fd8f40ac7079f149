"""Anew: a new log in the place of another one, which stays on record under another id.

The events of the new log are numbered on behind the old one's last. So whoever has seen the old one up to any event,
and asks for what came after that, is given all of the new one and nothing else, with the event first that says so.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from lmagent.core.errors import SessionNotFound
from lmagent.core.events import SessionCreated
from lmagent.core.ports import Clock
from lmagent.store.failures import store_error
from lmagent.store.files import replace_whole
from lmagent.store.follow import last_seq
from lmagent.store.fork import fork_log, take_away
from lmagent.store.lock import hold
from lmagent.store.log import BLOBS, EVENTS, LOCK, JsonlLog, stamp


def begin_anew(folder: Path, aside: Path, opening: SessionCreated, clock: Clock) -> JsonlLog:
    """Put a session's log aside and a new one in its place, which happens all at once.

    Who is killed in between leaves the session as it was, and perhaps a copy of it. The lock is held throughout, and
    by the new log then, so that nobody else can have the session in between.

    Args:
        folder: of the session.
        aside: of the session that is to have the old log; there is none yet.
        opening: the first event of the new log, which names `aside`.
        clock: gives events their time.

    Returns:
        The new log, open.

    Raises:
        SessionNotFound: no such session.
        SessionBusy: a process writes it.
        StoreError: it could not be done; the session is as it was, unless all that failed is what comes last: to sync
            its folder, or to open the new log. Then it has begun anew.
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
            shutil.rmtree(folder / BLOBS, ignore_errors=True)  # the copy has those that it needs
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
