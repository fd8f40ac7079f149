"""A run in a process of its own that kills itself at one of its events."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from lmagent.testing import ScriptedServer

VICTIM = Path(__file__).with_name("victim.py")


def run(workspace: Path, server: ScriptedServer, kill_at: int, where: str, task: str) -> subprocess.CompletedProcess:
    """Run `victim.py`.

    Args:
        workspace: where it works; its home is the folder around.
        server: the model.
        kill_at: number of the event at which it dies; 0 for none.
        where: `before`, `torn` (in the middle of) or `after` the write.
        task: what to do; empty to go on.
    """
    environment = {**os.environ, "HOME": str(workspace.parent), "PYTHONPATH": str(VICTIM.parent)}
    return subprocess.run(
        [sys.executable, str(VICTIM), str(workspace), server.base_url, str(kill_at), where, task],
        capture_output=True,
        env=environment,
        cwd=workspace,
        timeout=60,
        check=False,
    )
