"""`lmagent TASK` with configured servers: real programs, in the sandbox, with faults."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp_kit import FAULTY
from toolskit import used

from lmagent.testing import ScriptedServer
from lmagent.testing.script import say

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap: it is not installed")


def configure(workspace: Path, text: str) -> None:
    shutil.copy(FAULTY, workspace)
    file = workspace.parent / ".config" / "lmagent" / "mcp.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def servers(**faults: str) -> str:
    command = {"command": "python3"}
    entries = {
        name: {**command, "args": ["faulty_server.py", fault], "start_timeout": 5} for name, fault in faults.items()
    }
    return json.dumps({"mcpServers": entries})


def lmagent(workspace: Path, server: ScriptedServer, *more: str) -> subprocess.CompletedProcess[str]:
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("LLM", "XDG", "AGENT", "LMAGENT"))
    }
    return subprocess.run(
        [sys.executable, "-m", "lmagent", "use the servers", "--permission", "auto", *more],
        env={**kept, "HOME": str(workspace.parent), "LLM_URL": server.base_url},
        cwd=workspace,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def results(server: ScriptedServer) -> list[str]:
    return [str(message["content"]) for message in server.chats[-1].body["messages"] if message["role"] == "tool"]


def first_prompt(server: ScriptedServer) -> str:
    return str(server.chats[0].body["messages"])


def test_a_tool_is_used_in_the_first_run_and_listed_at_once_in_the_second(empty_workspace: Path) -> None:
    configure(empty_workspace, servers(calm=""))
    script: list[Any] = [used("describe", name="calm"), used("calm_echo", text="hi"), say("Done.")]
    with ScriptedServer(script, strict=True) as server:
        done = lmagent(empty_workspace, server)
        assert done.returncode == 0, done.stderr
        assert "- calm: starting" in first_prompt(server)
        described, said = results(server)
        assert "- calm_echo()" in described
        assert "\nhi\n" in said
    with ScriptedServer([say("Done.")], strict=True) as server:
        lmagent(empty_workspace, server)
        assert "- calm_echo(): echo4" in first_prompt(server) or "- calm_echo(): echo0" in first_prompt(server)


def test_faulty_servers_end_no_turn(empty_workspace: Path) -> None:
    configure(empty_workspace, servers(calm="", hung="hang", loud="noise", dead="crash"))
    script: list[Any] = [
        used("hung_echo", text="a"),
        used("dead_echo", text="b"),
        used("loud_echo", text="c"),
        used("calm_die"),
        used("calm_echo", text="d"),
        say("Done."),
    ]
    with ScriptedServer(script, strict=True) as server:
        done = lmagent(empty_workspace, server)
        assert done.returncode == 0, done.stderr
        hung, dead, loud, died, calm = results(server)
        assert "hung" in hung
        assert "dead" in dead
        assert "\nc\n" in loud
        assert "calm" in died
        assert "\nd\n" in calm


def test_a_broken_file_names_its_line_and_the_task_is_done(empty_workspace: Path) -> None:
    configure(empty_workspace, '{\n "mcpServers": {\n  "calm": [\n}}')
    with ScriptedServer([say("Done.")], strict=True) as server:
        done = lmagent(empty_workspace, server)
        assert done.returncode == 0
        assert "mcp.json:4" in done.stderr


def test_rules_name_tools_of_servers_that_never_ran(empty_workspace: Path) -> None:
    configure(empty_workspace, servers(calm=""))
    script: list[Any] = [used("calm_echo", text="a"), used("calm_env"), say("Done.")]
    with ScriptedServer(script, strict=True) as server:
        (empty_workspace.parent / ".config/lmagent/config.toml").write_text(
            'permission_deny = ["calm_echo", "mcp__calm__env"]\n'
        )
        lmagent(empty_workspace, server)
        assert all("Denied" in text for text in results(server))
