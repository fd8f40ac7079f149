"""Retention: the sessions that the setting `cluster_retention_days` ends are deleted, once an hour by one worker."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import anyio

from lmagent.app.records import WorkspaceRecords
from lmagent.cluster.threads import in_thread
from lmagent.core.errors import LmagentError
from lmagent.core.plurals import plural

if TYPE_CHECKING:
    from lmagent.app.host import Host
    from lmagent.cluster.store import ClusterStore

EVERY = 3600.0  # seconds between two looks whether another worker does the upkeep of this hour
BATCH = 50  # sessions that are deleted at a time: a worker that is to stop waits for them


async def retain(host: Host, say: Callable[[str], None]) -> None:
    """Do the upkeep of the host's workspace, until cancelled, in the hours in which no other worker does it."""
    store = cast("ClusterStore", host.store)
    while True:
        try:
            if await in_thread(store.begins_upkeep):
                await _prune(host, store, say)
        except (LmagentError, OSError) as trouble:
            say(f"old sessions are not deleted: {trouble}")
        await anyio.sleep(EVERY)


async def _prune(host: Host, store: ClusterStore, say: Callable[[str], None]) -> None:
    records = WorkspaceRecords(host.workspace, store, host.settings.agent_data_dir)

    def prune() -> list[str]:
        deleted = store.prune(BATCH)
        for session in deleted:
            records.forget_files(session)
        return deleted

    count = 0
    while deleted := await in_thread(prune):
        count += len(deleted)
        for session in deleted:
            host.left.pop(session, None)
    if count:
        days = plural(host.settings.cluster_retention_days, "day")
        say(f"deleted {plural(count, 'session')} that nothing was written in for {days}")
