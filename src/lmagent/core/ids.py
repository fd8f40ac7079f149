"""Identifiers: short, sortable where that helps, and safe in file names."""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime

SESSION_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
"""The form of a session id; our own are `YYYYmmdd_HHMMSS_<6 hex>` in UTC, clients and imports bring theirs."""

SESSION_RULE = "up to 64 letters, digits, dots, hyphens and underscores; not '.', '..' or 'activity'"
"""The same in words."""

_TAKEN = frozenset({".", "..", "activity"})
"""Names with another meaning: folders, and the gateway's socket for the activity of all sessions."""


def new_session_id(now: float) -> str:
    """Return a new session id for the moment `now` (Unix seconds)."""
    return datetime.fromtimestamp(now, UTC).strftime("%Y%m%d_%H%M%S_") + os.urandom(3).hex()


def new_id() -> str:
    """Return a random id of 12 hexadecimal digits: unique within a session, short in a log line."""
    return os.urandom(6).hex()


def is_session_id(text: str) -> bool:
    """Whether `text` may name a session, and its folder."""
    return SESSION_ID.fullmatch(text) is not None and text not in _TAKEN
