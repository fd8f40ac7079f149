"""Tools behind use_tool: listed at the tail, called by name, with the same gate."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import anyio
import pytest

from lmagent.app.options import HostOptions
from lmagent.app.wiring import open_host
from lmagent.core.commands import Submit
from lmagent.core.messages import user
from lmagent.engine.lane import run_until_idle
from lmagent.testing import ScriptedServer
from lmagent.testing.script import call, say


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap: it is not installed")
def test_git_tools_of_the_shell_are_not_listed_and_can_be_called(empty_workspace: Path):
    workspace = empty_workspace
    subprocess.run(["git", "init", "-q", "-b", "trunk", workspace], check=True)
    (workspace / "new.txt").write_text("new\n")

    async def main() -> None:
        script = [call("use_tool", name="git_status", arguments={}), say("One new file.")]
        with ScriptedServer(script, strict=True) as server:
            host = await open_host(HostOptions(workspace, {"llm_url": server.base_url}), say=lambda _: None)
            try:
                session = await host.new_session()
                await session.send(Submit(message=user("what changed?")))
                await run_until_idle(session)
            finally:
                await host.aclose()
            first, second = (request.body for request in server.chats)
            assert "git_status" not in str(first["tools"])
            assert "git_status" not in first["messages"][1]["content"]
            assert "- git_commit(message): " in first["messages"][1]["content"]
            assert first["messages"][1]["content"].endswith("what changed?")
            assert "new.txt" in second["messages"][-1]["content"]
            assert "trunk" in second["messages"][-1]["content"]

    anyio.run(main)
