"""A program in a workspace of its own; makes `program`, and the `terminal` of the REPL's tests, importable."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[1] / "repl"))

from program import Program


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)
