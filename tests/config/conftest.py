from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from config_machine import Machine


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """A folder that every user can reach; pytest's own are closed to others."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        folder.chmod(0o755)
        yield folder
