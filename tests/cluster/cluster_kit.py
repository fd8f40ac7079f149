"""What the tests of the cluster share: stores on an empty database, each as a process of its own would open it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from testkit.postgres import database, shared_server

from lmagent.app.clock import SystemClock
from lmagent.cluster.database import Database
from lmagent.cluster.listening import Listener
from lmagent.cluster.presence import BEAT, Presence
from lmagent.cluster.store import ClusterStore

WORKSPACE = "project"


class Cluster:
    """Opens stores on one database. Each has a database, a presence and a listener of its own."""

    def __init__(self, url: str, stack: ExitStack) -> None:
        self.url = url
        self._stack = stack

    def store(self, workspace: str = WORKSPACE, *, beat: float = BEAT) -> ClusterStore:
        """Return the store of a process; a long `beat` is that of a process that was stopped."""
        known = Database(self.url)
        presence, listener = Presence(known, beat=beat), Listener(known)
        for part in (known, presence, listener):  # closed in the other order
            self._stack.callback(part.close)
        return ClusterStore(workspace, presence, listener, SystemClock())

    def sql(self, statement: str) -> str:
        return shared_server().psql(f"SET search_path = lmagent; {statement}", self.url.rpartition("/")[2])

    def age(self) -> None:
        """Let the heartbeats of all processes be older than the lease."""
        end = time.monotonic() + 10
        self.sql("UPDATE process SET beat = beat - interval '1 minute'")
        while self.sql("SELECT is_alive(beat) FROM process LIMIT 1") == "t":  # the lease begins with the server
            assert time.monotonic() < end
            time.sleep(0.1)


@contextmanager
def cluster() -> Iterator[Cluster]:
    with database() as url, ExitStack() as stack:
        yield Cluster(url, stack)
