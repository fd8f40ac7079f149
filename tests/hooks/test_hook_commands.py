"""/hooks, `lmagent hooks`, and what `lmagent config trust` covers."""

from __future__ import annotations

import subprocess
import sys

import anyio
from hook_kit import HookWorld, hook

from lmagent.app.options import HostOptions
from lmagent.app.slash import SlashContext, dispatch
from lmagent.app.wiring import open_host
from lmagent.core.view import View


def lmagent(world: HookWorld, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "lmagent", words[0], "-w", str(world.workspace), *words[1:]]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_the_slash_command_lists_what_would_run_and_what_would_not(world: HookWorld):
    world.users(hook("Stop", "make lint", sandbox=False))
    world.workspaces(hook("PreToolUse", "check \x1b[2J.py", "Edit|Write"), trusted=False)

    async def shown() -> str:
        host = await open_host(HostOptions(world.workspace, {"llm_url": "http://127.0.0.1:9/v1"}), say=lambda _: None)
        try:
            return (await dispatch("/hooks", SlashContext(host, None, View()))).text
        finally:
            await host.aclose()

    text = anyio.run(shown)
    assert "hooks.json (yours): runs\n  Stop *: make lint (60 s, outside the sandbox)" in text
    assert "(this workspace's): does not run: you do not trust the folder\n  → read it" in text
    assert "PreToolUse Edit|Write: check \\x1b[2J.py (60 s)" in text


def test_trusting_a_folder_names_its_hook_files_and_lets_them_run(world: HookWorld):
    world.workspaces(hook("Stop", "make lint"), trusted=False)
    assert "does not run" in lmagent(world, "hooks").stdout
    assert ".claude/settings.json" in lmagent(world, "config", "trust").stdout
    assert "does not run" not in lmagent(world, "hooks", "list").stdout


def test_a_hook_can_be_tried_with_an_example(world: HookWorld):
    world.users(hook("PreToolUse", "jq -r .tool_input.file_path; echo nothing there >&2; exit 2", "Write"))
    ran = lmagent(world, "hooks", "test", "PreToolUse", "--tool", "Write")
    assert ran.returncode == 0, ran.stderr
    assert "exit code 2" in ran.stdout
    assert f"{world.workspace}/example.txt" in ran.stdout
    assert "nothing there" in ran.stdout
    assert "→ it objects" in ran.stdout
    assert "no hook would run" in lmagent(world, "hooks", "test", "Stop").stderr
    wrong = lmagent(world, "hooks", "test", "PreTool")
    assert wrong.returncode != 0
    assert "one of PreToolUse" in wrong.stderr
