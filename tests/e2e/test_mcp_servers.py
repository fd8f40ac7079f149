"""A user adds an MCP server from a package, and the agent uses its tool in the next task."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from testkit import tinymcp

from lmagent.testing import ScriptedServer
from lmagent.testing.script import call, say

EVERYTHING = "@modelcontextprotocol/server-everything"


def lmagent(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command in the workspace of a user with a home of their own."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("LLM", "LM_", "XDG", "AGENT"))}
    env |= {"HOME": str(folder / "home"), "LLM_RETRY_DELAY": "0", "NO_COLOR": "1"}
    command = [sys.executable, "-m", "lmagent", *words]
    where = folder / "workspace"
    return subprocess.run(command, cwd=where, env=env, capture_output=True, text=True, timeout=240, check=False)


def results(workspace: Path) -> str:
    """The results of all tools in the log of the only session."""
    (log,) = workspace.glob(".lmagent/sessions/*/events.jsonl")
    events = map(json.loads, log.read_text().splitlines())
    return json.dumps([event for event in events if event["type"] == "tool.finished"])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("home", "workspace"):
        (tmp_path / name).mkdir()
    return tmp_path


def task(folder: Path, text: str, tool: str, **arguments: object) -> str:
    """Let a scripted model use a tool of a server once, and return the results."""
    script = [call("use_tool", name=tool, arguments=arguments), say("It said hi.")]
    with ScriptedServer(script, strict=True) as model:
        ran = lmagent(folder, "--base-url", model.base_url, "--permission", "auto", text)
        assert ran.stdout == "It said hi.\n", ran.stderr
        first = next(json.dumps(request.body) for request in model.requests if request.path.endswith("/completions"))
        note = first.partition("<mcp>")[2].partition("</mcp>")[0]
        assert "echo" in note, "the first request does not list the tool"
    return results(folder / "workspace")


def test_a_server_is_added_and_its_tool_is_in_the_very_next_task(folder):
    tinymcp.put(folder / "workspace")
    entry = tinymcp.entry()
    target = (entry["command"], *entry["args"])
    added = lmagent(folder, "mcp", "add", "tiny", "--path", entry["paths"][0], "--", *target)
    assert added.returncode == 0, added.stderr
    assert "hi there" in task(folder, "use the echo tool to say hi", "tiny_echo", message="hi there")


@pytest.mark.long
@pytest.mark.skipif(not shutil.which("npx"), reason="Node is not installed")
def test_a_server_from_a_package_is_added_and_used(folder):
    added = lmagent(folder, "mcp", "add", "everything", "--", "npx", "-y", EVERYTHING)
    assert added.returncode == 0, added.stderr
    assert '"network": ["packages"]' in added.stdout
    assert "echo(message: string)" in added.stdout
    assert "Echo: hi there" in task(folder, "use the echo tool to say hi", "everything_echo", message="hi there")
