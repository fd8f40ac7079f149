from __future__ import annotations

from pathlib import Path

import pytest
from hook_kit import HookWorld


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HookWorld:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "LMAGENT_CONFIG", "AGENT_DATA_DIR"):
        monkeypatch.delenv(name, raising=False)
    return HookWorld(tmp_path)
