"""Sandboxes for the tests: what this machine cannot give is skipped, and says so."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import anyio
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from sandbox_kit import bubblewrap


@pytest.fixture(scope="session")
def works(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Skip where bubblewrap cannot run."""
    if shutil.which("bwrap") is None:
        pytest.skip("needs bubblewrap: it is not installed")
    report = anyio.run(bubblewrap(tmp_path_factory.mktemp("probe")).probe)
    if not report.works:
        pytest.skip(f"needs bubblewrap: {report.reason}")
