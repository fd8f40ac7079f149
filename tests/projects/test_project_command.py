"""/project: the user's way to the project, on each surface."""

from __future__ import annotations

from pathlib import Path

import pytest

from lmagent.app.slash import SlashContext, dispatch
from lmagent.app.wiring import HostOptions, open_host
from lmagent.core.errors import ConfigError
from lmagent.core.view import View

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_the_user_creates_pauses_resumes_and_notes(empty_workspace: Path):
    host = await open_host(HostOptions(empty_workspace, {"llm_url": "http://127.0.0.1:9"}), say=lambda _: None)

    async def typed(line: str) -> str:
        return (await dispatch(line, SlashContext(host, None, View()))).text

    try:
        assert "there is no project here" in await typed("/project")
        with pytest.raises(ConfigError, match="there is no project here"):
            await typed("/project pause")
        assert "planning: Compare the rates" in await typed("/project create Compare the rates")
        assert "is executing" in await typed("/project state executing")
        assert "is paused" in await typed("/project pause")
        assert "is executing" in await typed("/project resume")
        assert "user: Bank B has no fees" in await typed("/project note Bank B has no fees")
        shown = await typed("/project show")
        assert "executing (can become reviewing, paused)" in shown
        assert "notebook:" in shown
        for line, why in {
            "state flying": "possible from executing",
            "dance": "does not know",
            "create x": "exists",
        }.items():
            with pytest.raises(ConfigError, match=why):
                await typed(f"/project {line}")
    finally:
        await host.aclose()
