"""Without a sandbox the probe's attacks succeed, on the machine itself: nothing of them may stay."""

from __future__ import annotations

import os
from pathlib import Path

import anyio
import pytest

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
