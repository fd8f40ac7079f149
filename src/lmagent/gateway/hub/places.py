"""Places: what stands in the folder of the sessions where a session is wanted."""

from __future__ import annotations

import os
from pathlib import Path

from lmagent.core.errors import SessionNotFound
from lmagent.core.ids import is_session_id
from lmagent.gateway.http.errors import Refusal
from lmagent.store.jsonl import JsonlStore
from lmagent.store.log import EVENTS, LOCK, log_facts


def check_place(folder: Path) -> None:
    """Refuse to begin a session where something stands that is none.

    Args:
        folder: where it is to be; that of all sessions, if its name is still to be made.

    Raises:
        Refusal: it does.
    """
    if not folder.is_symlink() and (not folder.exists() or log_facts(folder) is not None):
        return  # that there is a session already, the store says
    if folder.is_symlink() or not folder.is_dir() or os.path.lexists(folder / EVENTS):
        what = f"what stands at {folder.name} in the folder of the sessions is no session"
        raise Refusal(409, "no_session", what, fix="take another id, or move it away")


def check_session(store: JsonlStore, session: str, *, is_deleted: bool) -> None:
    """Refuse what is no session, or none that can be read.

    Raises:
        SessionNotFound: there is none of that id.
        Refusal: its log may not be read.
    """
    if is_deleted or not is_session_id(session):
        raise SessionNotFound(f"there is no session {session}", fix="GET /api/sessions lists them")
    store.read(session)
    log = store.root / session / EVENTS
    if not os.access(log, os.R_OK, effective_ids=True):
        what = f"the log of session {session} may not be read by the user of this gateway"
        raise Refusal(403, "unreadable", what, fix=f"look at the rights of {log}")


def check_lock(store: JsonlStore, session: str) -> None:
    """Refuse to open a session whose lock is none.

    Raises:
        Refusal: something else stands in its place.
    """
    lock = store.root / session / LOCK
    if os.path.lexists(lock) and (lock.is_symlink() or not lock.is_file()):
        what = f"what stands at {LOCK} in the folder of session {session} is no lock"
        raise Refusal(409, "no_lock", what, fix=f"move it away: {lock}")
