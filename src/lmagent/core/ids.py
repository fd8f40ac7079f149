"""Identifiers of sessions, events and inputs: short, sortable where that helps, and safe in file names."""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime
from typing import Literal

from msgspec import Struct

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


class InputOrigin(Struct, frozen=True):
    """Where an input comes from. Its text, `kind:key`, is the id of its job; empty for the terminal.

    Attributes:
        kind: `web`: the page; `api`: a client of OpenAI's API; `plan`: a decided plan; `agent`: the parent session.
        key: unique within the kind; an origin submits once. Empty for the terminal.
    """

    kind: Literal["cli", "web", "api", "cron", "inbox", "wait", "plan", "agent"] = "cli"
    key: str = ""

    @property
    def is_attended(self) -> bool:
        """Whether a user can answer questions of its turn."""
        return self.kind not in ("cron", "inbox")

    @property
    def is_user(self) -> bool:
        """Whether a user sent it, and no job of the program."""
        return self.kind in ("cli", "web", "api")

    def __str__(self) -> str:
        return f"{self.kind}:{self.key}" if self.key else ""

    @classmethod
    def of(cls, text: str) -> InputOrigin:
        """Return the origin with this text; earlier logs have `web:oai:…`, `plan-…`, and the id of a sub-agent too."""
        kind, mark, key = text.partition(":")
        if kind == "web" and key.startswith(("oai:", "oas:")):
            return cls("api", key)
        if mark and kind in ("web", "api", "cron", "inbox", "wait", "plan", "agent"):
            return cls(kind, key)
        if text.startswith("plan-"):
            return cls("plan", text.removeprefix("plan-"))
        return cls("agent", text) if text else cls()
