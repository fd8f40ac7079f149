"""Without a sandbox the probe's attacks succeed, on the machine itself, and nothing of them stays; limits hold."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import anyio
import pytest

from lmagent.core.sandbox import Exec, Exit, Limits
from lmagent.sandbox.unconfined import Unconfined

MOUNTS = Path("/proc/self/mountinfo")


@pytest.mark.skipif(not MOUNTS.exists(), reason="needs /proc")
def test_a_probe_that_succeeds_leaves_nothing_behind(tmp_path: Path) -> None:
    before = len(MOUNTS.read_text().splitlines())

    async def probed() -> dict[str, bool]:
        sandbox = Unconfined(tmp_path, os.environ)
        try:
            report = await sandbox.probe()
            return {promise.name: promise.kept for promise in report.promises}
        finally:
            await sandbox.aclose()

    kept = anyio.run(probed)
    assert not kept["files"], "nothing confined it, so it must have been able to read files of the host"
    assert len(MOUNTS.read_text().splitlines()) == before
    assert not [path for folder in ("/usr", "/etc", tmp_path) for path in Path(folder).glob(".lmagent-probe*")]


@pytest.mark.skipif(not Path("/usr/bin/prlimit").exists(), reason="needs prlimit")
def test_a_command_without_a_sandbox_has_the_limits_all_the_same(tmp_path: Path) -> None:
    async def ended(program: str, limits: Limits) -> Exit:
        sandbox = Unconfined(tmp_path, os.environ, limits)
        running = await sandbox.start(Exec((sys.executable, "-c", program)), lambda *_: None)
        return await running.wait()

    small = Limits(memory_mb=128, pids=4)
    assert anyio.run(ended, "x = bytearray(10**9)", small).code != 0
    together = "import os, time\nfor _ in 'abc':\n    if os.fork() == 0: x = b'x' * 6**10; time.sleep(30)\nos.wait()"
    assert anyio.run(ended, together, small).reason == "memory"
    many = "import os, time\nfor _ in range(20):\n    if os.fork() == 0: time.sleep(30)\nos.wait()"
    assert anyio.run(ended, many, small).reason == "killed"
