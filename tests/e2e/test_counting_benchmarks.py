"""The benchmarks that count tokens and facts, and time nothing, hold their bars on every run of the tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

BENCH = Path(__file__).resolve().parents[2] / "bench"


@pytest.mark.parametrize(
    "name", ["prompt", "prefix", "slots", "subagents", "compaction", "facts", "pages", "behaviours"]
)
def test_what_a_benchmark_counts_is_within_its_bar(name: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(BENCH / "run.py"), "--quick", "--only", name],
        env=os.environ | {"HOME": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report[name]
    assert report["missed"] == []
