"""Member: this process as one of the cluster's, with its connections, its heartbeat, and its ear for notifications."""

from __future__ import annotations

import atexit
from functools import cache

from lmagent.cluster.database import Database
from lmagent.cluster.listening import Listener
from lmagent.cluster.presence import BEAT, Presence


class Member:
    """A process of the cluster. Nothing is connected before the first use."""

    def __init__(self, url: str, *, beat: float = BEAT) -> None:
        self.database = Database(url)
        self.presence = Presence(self.database, beat=beat)
        self.listener = Listener(self.database)

    def close(self) -> None:
        """Leave the cluster: the sessions of this process are free at once."""
        self.listener.close()
        self.presence.close()
        self.database.close()


@cache
def member_at(url: str) -> Member:
    """Return this process as a member of the cluster at a URL, one for all its stores; it leaves when it exits.

    A worker or a gateway sets `presence.kind` and `presence.workspaces` before it opens a session.
    """
    member = Member(url)
    atexit.register(member.close)
    return member
