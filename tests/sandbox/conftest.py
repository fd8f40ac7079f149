"""Sandboxes for the tests: what this machine cannot give is skipped, and says so."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import anyio
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from lmagent.sandbox.bubblewrap import Bubblewrap, BubblewrapOptions


def bubblewrap(workspace: Path, **more) -> Bubblewrap:
    return Bubblewrap(workspace, BubblewrapOptions(env=dict(os.environ), **more))


@pytest.fixture(scope="session")
def works(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Skip where bubblewrap cannot run."""
    if shutil.which("bwrap") is None:
        pytest.skip("needs bubblewrap: it is not installed")
    report = anyio.run(bubblewrap(tmp_path_factory.mktemp("probe")).probe)
    if not report.works:
        pytest.skip(f"needs bubblewrap: {report.reason}")
