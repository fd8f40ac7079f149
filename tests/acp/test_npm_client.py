"""The protocol's official npm client runs a session, with the command of Zed's settings in the documentation."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

from acp_kit import LIMIT, ROOT, sdk

from lmagent.testing import calls, hang, say, tool


def zed_command() -> list[str]:
    """Return the command in the settings for Zed, as `docs/acp.md` has them."""
    page = (ROOT / "docs" / "acp.md").read_text()
    block = next(block for block in re.findall(r"```json\n(.*?)```", page, re.DOTALL) if "agent_servers" in block)
    server = json.loads(block)["agent_servers"]["lmagent"]
    return [server["command"], *server["args"]]


def test_the_npm_client_runs_a_session_with_zeds_settings(served, tmp_path):
    package = sdk()
    write = calls(tool("write", path="b.txt", content="x\n"), text="I write it.")
    program = served([write, say("It is written."), hang(say("And then more than one piece"), chunks=2)])
    name, *arguments = zed_command()
    (tmp_path / name).write_text(f'#!/bin/sh\nexec {sys.executable} -m lmagent "$@"\n')  # as it is found on the PATH
    (tmp_path / name).chmod(0o755)
    module = package / "dist" / "v1" / "stable" / "acp.js"
    client = Path(__file__).with_name("client.mjs")
    done = subprocess.run(
        [str(shutil.which("node")), str(client), str(module), str(program.workspace), name, *arguments],
        env={**program.env, "PATH": f"{tmp_path}:{program.env['PATH']}", "LLM_URL": program.base_url},
        capture_output=True,
        text=True,
        timeout=3 * LIMIT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    seen = json.loads(done.stdout)
    first, second = seen["first"], seen["second"]
    assert first["stops"] == ["end_turn", "cancelled"]
    assert (program.workspace / "b.txt").read_text() == "x\n"
    (asked,) = first["asked"]
    assert asked["toolCall"]["content"][0]["newText"] == "x\n"
    replayed = [update for update in second["updates"] if update["sessionUpdate"] == "user_message_chunk"]
    assert [update["content"]["text"] for update in replayed] == ["write b.txt", "and more"]
    assert [row["sessionId"] for row in second["listed"]["sessions"]] == [first["session"]["sessionId"]]
    assert first["code"] == second["code"] == 0
