"""Makes `schedule_kit` importable, and gives a workspace."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("WORKSPACE", raising=False)
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder
