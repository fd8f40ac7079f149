"""The cost of an event and of a step in PostgreSQL, as a ratio to the embedded store in the same run.

    .venv/bin/python bench/cluster_store.py [EVENTS]

PostgreSQL runs on this machine with its usual durability (`fsync`, synchronous commits). A step is six events, of which
the embedded store syncs two to the disk. Both stores take turns, so that a busy machine slows both.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

import anyio

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from testkit.postgres import postgres

from lmagent.app.clock import SystemClock
from lmagent.cluster.database import Database
from lmagent.cluster.member import Member
from lmagent.cluster.store import ClusterStore
from lmagent.config.settings import Settings
from lmagent.core.ports import SessionLog
from lmagent.store.jsonl import JsonlStore
from lmagent.testing.conformance.store import SESSION, opening, said

STEP = (False, False, True, True, False, False)
TEXT = "x" * 800  # about the middle of a session's events


async def append(log: SessionLog, *, sync: bool) -> float:
    begun = time.perf_counter()
    await log.append(said(TEXT), sync=sync)
    return (time.perf_counter() - begun) * 1000


async def measure(logs: dict[str, SessionLog], events: int) -> None:
    plain: dict[str, list[float]] = {name: [] for name in logs}
    synced: dict[str, list[float]] = {name: [] for name in logs}
    steps: dict[str, list[float]] = {name: [] for name in logs}
    for log in logs.values():
        await log.append(opening())
    for _ in range(events // len(STEP)):
        for name, log in logs.items():
            times = [await append(log, sync=sync) for sync in STEP]
            steps[name].append(sum(times))
            for sync, took in zip(STEP, times, strict=True):
                (synced if sync else plain)[name].append(took)
    for what, found in (("event", plain), ("event with sync", synced), ("step of 6 events", steps)):
        files, tables = (statistics.median(found[name]) for name in ("files", "tables"))
        worst = statistics.quantiles(found["tables"], n=100)[98]
        ratio, more = tables / files, tables - files
        print(f"{what}: files {files:.3f} ms, tables {tables:.3f} ms, {ratio:.1f}x, +{more:.2f} ms, 99% {worst:.2f} ms")


def main() -> None:
    events = int(sys.argv[1]) if len(sys.argv) > 1 else 3000
    with postgres("-c", "fsync=on") as server, tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        known = Database(server.url())
        known.migrate()
        known.close()
        member, clock = Member(server.url()), SystemClock()
        tables = ClusterStore("bench", member, clock, Settings(agent_data_dir=Path(folder)))
        files = JsonlStore(Path(folder) / "sessions", clock)
        logs: dict[str, SessionLog] = {"files": files.create(SESSION), "tables": tables.create(SESSION)}
        anyio.run(measure, logs, events)
        for log in logs.values():
            log.close()
        member.close()


if __name__ == "__main__":
    main()
