"""Identifiers: short, sortable where that helps, and safe in file names."""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime

SESSION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""What a session id may look like; our own are `YYYYmmdd_HHMMSS_<6 hex>` in UTC, imported ones keep theirs."""


def new_session_id(now: float) -> str:
    """A new session id for the moment `now` (Unix seconds)."""
    return datetime.fromtimestamp(now, UTC).strftime("%Y%m%d_%H%M%S_") + os.urandom(3).hex()


def new_id() -> str:
    """A random id of 12 hexadecimal digits: unique within a session, short in a log line."""
    return os.urandom(6).hex()


def is_session_id(text: str) -> bool:
    """Whether `text` may name a session's folder."""
    return SESSION_ID.fullmatch(text) is not None
