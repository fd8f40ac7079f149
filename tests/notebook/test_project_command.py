"""/project: the user's way to the project, on each surface."""

from __future__ import annotations

from pathlib import Path

import pytest

from lmagent.app.options import HostOptions
from lmagent.app.slash import SlashContext, dispatch
from lmagent.app.wiring import open_host
from lmagent.core.commands import Submit
from lmagent.core.errors import ConfigError
from lmagent.core.messages import user
from lmagent.core.view import View
from lmagent.engine.lane import run_until_idle
from lmagent.testing import ScriptedServer
from lmagent.testing.script import call, say

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
            "resume": "it is not paused",
            "dance": "does not know",
            "create x": "exists",
        }.items():
            with pytest.raises(ConfigError, match=why):
                await typed(f"/project {line}")
    finally:
        await host.aclose()


async def test_undo_takes_back_what_the_agent_did_to_the_project(empty_workspace: Path):
    create = call("use_tool", name="project", arguments={"operation": "create", "text": "Compare"})
    begin = call("use_tool", name="project", arguments={"operation": "state", "text": "executing"})
    with ScriptedServer([create, say("Created."), begin, *[say("Begun.")] * 4]) as server:
        flags = {"llm_url": server.url, "permission_mode": "auto"}
        host = await open_host(HostOptions(empty_workspace, flags), say=lambda _: None)
        session = await host.new_session()
        file = empty_workspace / "project.json"
        try:
            for text in ("Begin a project.", "Plan it."):
                await session.send(Submit(message=user(text)))
                await run_until_idle(session)
            assert '"executing"' in file.read_text()
            await dispatch("/undo", SlashContext(host, session, View()))
            assert '"planning"' in file.read_text()
            assert '"Compare"' in file.read_text()
        finally:
            await host.aclose()
