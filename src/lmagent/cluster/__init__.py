"""Many workers on PostgreSQL: the sessions' logs, the queue, and the commands of gateways. Read `database.py` next.

`open_store` opens the sessions of a workspace: in its folder or, with `cluster_url`, in the database. Without that
setting, no library for it is imported.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from lmagent.config.settings import Settings
from lmagent.core.ports import Clock
from lmagent.store.jsonl import JsonlStore

if TYPE_CHECKING:
    from lmagent.store.port import SessionStore

T = TypeVar("T")


def open_store(workspace: Path, settings: Settings, clock: Clock) -> SessionStore:
    """Return the sessions of a workspace. The database is first asked when they are used.

    Raises ConfigError: `cluster_url` or `cluster_objects` is wrong, or their libraries are missing.
    """
    if not settings.cluster_url:
        return JsonlStore(workspace / ".lmagent" / "sessions", clock)
    from lmagent.cluster.member import member_at  # loads the libraries of the extra
    from lmagent.cluster.store import ClusterStore

    return ClusterStore(workspace_name(workspace, settings), member_at(settings.cluster_url), clock, settings)


def shared_clock(settings: Settings, clock: Clock) -> Clock:
    """Return the clock that a workspace's processes share: with `cluster_url` the database's, else this machine's.

    Raises ConfigError: `cluster_url` is wrong, or its libraries are missing.
    """
    if not settings.cluster_url:
        return clock
    from lmagent.cluster.clock import ClusterClock
    from lmagent.cluster.member import member_at

    return ClusterClock(member_at(settings.cluster_url).database, clock)


async def without_blocking(settings: Settings, work: Callable[[], T]) -> T:
    """Return the result of work on a store. With `cluster_url` it runs in a thread, since the database may be away.

    The work always ends before this returns, and the caller gets its result although it is cancelled meanwhile.
    """
    if not settings.cluster_url:
        return work()
    from lmagent.cluster.threads import in_thread

    return await in_thread(work)


def workspace_name(workspace: Path, settings: Settings) -> str:
    """Return the name of a workspace in the cluster."""
    return settings.cluster_workspace or workspace.name
