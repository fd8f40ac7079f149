"""What a gateway alone does, a gateway of a cluster does through its workers: the same tests, over a cluster."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
SAME = (
    *("openai_facade", "session_marks", "stopping", "branches_api", "work_api", "order_of_messages"),
    *("turn_without_reply", "activity_api", "session_options"),
)
"""Test files about what clients see, and not about where a gateway keeps it."""


@pytest.mark.long
def test_a_gateway_of_a_cluster_passes_the_tests_of_one_that_runs_alone() -> None:
    files = [str(TESTS / "gateway" / f"test_{name}.py") for name in SAME]
    command = [sys.executable, "-m", "pytest", "-p", "testkit.over_cluster", "-n", "0", "-q", "-m", "not long", *files]
    env = {**os.environ, "PYTHONPATH": str(TESTS)}
    done = subprocess.run(command, env=env, cwd=TESTS.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-6000:]
    assert " passed" in done.stdout
