"""What the tests of the cluster share: stores on an empty database, each as a process of its own would open it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
from testkit.postgres import database, shared_server

from lmagent.app.clock import SystemClock
from lmagent.cluster.member import Member
from lmagent.cluster.presence import BEAT
from lmagent.cluster.store import ClusterStore
from lmagent.config.settings import Settings

WORKSPACE = "project"


class Cluster:
    """Opens stores on one database, with object storage at `objects`. Each is as in a process of its own."""

    def __init__(self, url: str, stack: ExitStack) -> None:
        self.url = url
        self.objects = ""
        self.data = Path(stack.enter_context(TemporaryDirectory()))
        self._stack = stack

    def store(self, workspace: str = WORKSPACE, *, beat: float = BEAT, days: int = 0) -> ClusterStore:
        """Return the store of a process; a long `beat` is that of a process that was stopped."""
        member = Member(self.url, beat=beat)
        self._stack.callback(member.close)
        settings = Settings(agent_data_dir=self.data, cluster_retention_days=days, cluster_objects=self.objects)
        return ClusterStore(workspace, member, SystemClock(), settings)

    def sql(self, statement: str) -> str:
        return shared_server().psql(f"SET search_path = lmagent; {statement}", self.url.rpartition("/")[2])

    def age(self) -> None:
        """Let the heartbeats of all processes be older than the lease."""
        end = time.monotonic() + 10
        self.sql("UPDATE process SET beat = beat - interval '1 minute'")
        while self.sql("SELECT is_alive(beat) FROM process LIMIT 1") == "t":  # the lease begins with the server
            assert time.monotonic() < end
            time.sleep(0.1)


async def until(holds: Callable[[], bool], seconds: float = 20.0) -> None:
    with anyio.fail_after(seconds):
        while not holds():  # noqa: ASYNC110 (other processes bring it about)
            await anyio.sleep(0.01)


@contextmanager
def cluster() -> Iterator[Cluster]:
    with database() as url, ExitStack() as stack:
        yield Cluster(url, stack)
