"""A writer of the history that kills itself at one of its steps.

history_victim.py FOLDER AT KILL_AT half|before
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from lmagent.schedule.ledger import Ledger, LedgerEntry

folder, at, kill_at, half = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "half"
ledger = Ledger(folder, lambda: 1.0)
ledger.read()
count = 0


def stepping(name: str) -> None:
    real = getattr(os, name)

    def step(*args, **more):
        global count
        count += 1
        if count == kill_at:
            if half and name == "write":
                real(args[0], bytes(args[1])[: len(args[1]) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*args, **more)

    setattr(os, name, step)


for name in ("open", "write", "fdatasync", "fsync", "replace", "unlink", "close"):
    stepping(name)
ledger.append(LedgerEntry(float(at), "job", "claimed", at, session="new"))
ledger.note("job", "ran", at, outcome="done")
