"""A program in a workspace of its own."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from program import Program


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)
