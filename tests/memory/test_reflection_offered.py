"""Reflection is off by default, and offered to a user once."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from lmagent.app.options import HostOptions
from lmagent.app.reflecting import ENOUGH, IdleReflection
from lmagent.app.wiring import open_host


def said_after(workspace: Path, looks: int) -> list[str]:
    """Return what is said while nothing is to do."""
    said: list[str] = []

    async def look() -> None:
        host = await open_host(HostOptions(workspace, {"llm_url": "http://127.0.0.1:9"}), say=print)
        try:
            reflection = IdleReflection(host, said.append)
            for _ in range(looks):
                await reflection.look(1000.0)
        finally:
            await host.aclose()

    anyio.run(look)
    return said


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    for number in range(ENOUGH - 1):
        (tmp_path / f"workspace/.lmagent/sessions/2026010{number + 1}_120000_abcdef").mkdir(parents=True)
    return tmp_path / "workspace"


def test_it_is_offered_once_when_there_are_some_sessions(workspace: Path) -> None:
    assert said_after(workspace, 2) == []
    (workspace / ".lmagent/sessions/20260201_120000_abcdef").mkdir()
    (offer,) = said_after(workspace, 2)
    assert "/memory reflect" in offer
    assert said_after(workspace, 2) == []
