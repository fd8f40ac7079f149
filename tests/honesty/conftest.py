"""Makes `playing` and `planted` importable, and gives a home folder of its own."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def folder(empty_workspace: Path) -> Path:
    return empty_workspace
