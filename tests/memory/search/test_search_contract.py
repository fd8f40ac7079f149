"""The embedded index keeps what a search promises."""

from __future__ import annotations

from pathlib import Path

import pytest
from testkit.memory_contract import MemoryContract

from lmagent.core.memory import MemoryIndex
from lmagent.memory import open_memory


class TestIndex(MemoryContract):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.root = tmp_path / "memory"

    def make(self) -> MemoryIndex:
        return open_memory(self.root)
