"""A writer of a cluster's session, to be disturbed: it appends numbered events, and prints each that was acknowledged.

Arguments: the database's URL, the writer's name.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import anyio

from lmagent.app.clock import SystemClock
from lmagent.cluster.log import ClusterLog
from lmagent.cluster.member import Member
from lmagent.cluster.store import ClusterStore
from lmagent.config.settings import Settings
from lmagent.core.errors import SessionBusy, SessionNotFound, StoreError
from lmagent.testing.conformance.store import SESSION, opening, said


def opened(store: ClusterStore) -> ClusterLog:
    """Return the log, once no other writer has it."""
    while True:
        try:
            return store.open(SESSION)
        except SessionBusy:
            time.sleep(0.1)


async def write(url: str, name: str) -> None:
    store = ClusterStore("project", Member(url), SystemClock(), Settings(agent_data_dir=Path("unused")))
    try:
        log = opened(store)
    except SessionNotFound:
        log = store.create(SESSION)
        await log.append(opening())
    number = 0
    while True:
        number += 1
        try:
            event = await log.append(said(f"{name}:{number}"))
        except StoreError as error:
            print(f"refused {type(error).__name__} {error.message}", flush=True)
            return
        print(f"written {name}:{number} {event.seq}", flush=True)
        await anyio.sleep(0.002)


if __name__ == "__main__":
    anyio.run(write, sys.argv[1], sys.argv[2])
