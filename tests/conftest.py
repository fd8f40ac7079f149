"""What tests of every folder may start from."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest
from testkit import starting

starting.install()

# Collecting makes millions of objects that all stay: looking for garbage among them took a third of its time, in each
# worker, and would take part of each test's.
gc.disable()


def pytest_collection_finish() -> None:
    """Look for garbage from here on, among what the tests make."""
    gc.freeze()
    gc.enable()


@pytest.fixture
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting comes from the environment of whoever runs the tests."""
    for name in [name for name in os.environ if name.startswith(("LLM", "LM_", "XDG", "LMAGENT"))]:
        monkeypatch.delenv(name)


@pytest.fixture
def empty_workspace(no_settings: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, in a home folder of the test's own."""
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder
