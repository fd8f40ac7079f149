"""A process that serves jobs and kills itself with SIGKILL in the middle of the n-th one; 0 ends when all are done.

dispatch_worker.py DATABASE LOG KILL_AT
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import anyio
import msgspec

from lmagent.app.clock import SystemClock
from lmagent.core.ports import DispatchJob
from lmagent.dispatch.embedded import EmbeddedDispatcher
from lmagent.dispatch.table import JobTable
from lmagent.store.database import open_database
from lmagent.store.lock import Owner, is_alive, this_process


async def main(path: Path, log: Path, kill_at: int) -> None:
    owner = msgspec.json.encode(this_process()).decode()
    table = JobTable(
        lambda: open_database(path), path, owner, lambda name: is_alive(msgspec.json.decode(name, type=Owner))
    )
    fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    done = 0

    async def handler(job: DispatchJob) -> None:
        nonlocal done
        os.write(fd, json.dumps({"what": "begin", "job": job.id}).encode() + b"\n")
        await anyio.sleep(0.002)
        done += 1
        if done == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        os.write(fd, json.dumps({"what": "end", "job": job.id}).encode() + b"\n")

    with anyio.move_on_after(30 if kill_at == 0 else 3):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(EmbeddedDispatcher(table, SystemClock(), lanes=3).serve, handler)
            while set(table.counts()) != {"done"}:  # noqa: ASYNC110 (other processes bring that about)
                await anyio.sleep(0.02)
            tasks.cancel_scope.cancel()
    table.close()


anyio.run(main, Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
