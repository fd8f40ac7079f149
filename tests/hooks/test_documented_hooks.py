"""Hooks of the kinds that the documentation of Claude Code shows; they run without a change."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hook_kit import HookWorld, hook

from lmagent.core import events as ev
from lmagent.testing import ScriptedServer
from lmagent.testing.script import call, say

LOG = r"""jq -r '"\(.tool_input.command): \(.tool_input.description // "no description")"' >> ~/.claude/commands.txt"""

PRETTIER = (
    """jq -r '.tool_input.file_path' | { read path; if [[ $path == *.ts ]]; then npx prettier --write "$path"; fi; }"""
)

PROTECT = (
    "python3 -c \"import json, sys; path = json.load(sys.stdin).get('tool_input', {}).get('file_path', ''); "
    "sys.exit(2 if any(part in path for part in ('.env', 'package-lock.json', '.git/')) else 0)\""
)

VALIDATOR = """#!/usr/bin/env python3
import json, re, sys
RULES = [(r"^grep\\b(?!.*\\|)", "use rg instead of grep"), (r"^find\\s+\\S+\\s+-name\\b", "use rg --files")]
try:
    data = json.load(sys.stdin)
except json.JSONDecodeError as error:
    print(f"no JSON: {error}", file=sys.stderr)
    sys.exit(1)
if data.get("tool_name") != "Bash":
    sys.exit(0)
found = [text for pattern, text in RULES if re.search(pattern, data["tool_input"].get("command", ""))]
for text in found:
    print(f"* {text}", file=sys.stderr)
sys.exit(2 if found else 0)
"""

FORMATTER = """#!/usr/bin/env python3
import json, re, sys
path = json.load(sys.stdin).get("tool_input", {}).get("file_path", "")
if not path.endswith((".md", ".mdx")):
    sys.exit(0)
text = open(path, encoding="utf-8").read()
new = re.sub(r"\\n{3,}", "\\n\\n", text).rstrip() + "\\n"
if new != text:
    open(path, "w", encoding="utf-8").write(new)
    print(f"formatted {path}")
"""

APPROVER = """#!/usr/bin/env python3
import json, sys
data = json.load(sys.stdin)
if data.get("tool_name") == "Read" and data["tool_input"].get("file_path", "").endswith((".md", ".txt")):
    print(json.dumps({"decision": "approve", "reason": "documentation", "suppressOutput": True}))
"""


def script(world: HookWorld, name: str, text: str) -> str:
    """Put a script into the project, and return the command that runs it."""
    path = world.workspace / ".claude" / "hooks" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return f'"$CLAUDE_PROJECT_DIR"/.claude/hooks/{name}'


def test_a_log_of_commands(world: HookWorld):
    world.workspaces(hook("PreToolUse", f"{LOG}; cp ~/.claude/commands.txt .", "Bash"))
    ran = world.run(call("shell", command="echo hi"))
    assert not ran.notices
    assert (world.workspace / "commands.txt").read_text() == "echo hi: no description\n"


def test_typescript_is_formatted_after_an_edit(world: HookWorld):
    prettier = world.workspace / "node_modules" / ".bin" / "prettier"
    prettier.parent.mkdir(parents=True)
    prettier.write_text("#!/bin/sh\nsed -i 's/$/;/' \"$2\"\n")
    prettier.chmod(0o755)
    world.workspaces(hook("PostToolUse", PRETTIER, "Edit|MultiEdit|Write"))
    ran = world.run(call("write", path="a.ts", content="let a = 1\n"), call("write", path="a.js", content="let a\n"))
    assert not ran.notices
    assert (world.workspace / "a.ts").read_text() == "let a = 1;\n"
    assert (world.workspace / "a.js").read_text() == "let a\n"


def test_markdown_is_formatted_by_a_script_of_the_project(world: HookWorld):
    world.workspaces(hook("PostToolUse", script(world, "markdown.py", FORMATTER), "Edit|Write"))
    world.run(call("write", path="a.md", content="# A\n\n\n\n\ntext"))
    assert (world.workspace / "a.md").read_text() == "# A\n\ntext\n"


def test_files_are_protected(world: HookWorld):
    world.workspaces(hook("PreToolUse", PROTECT, "Edit|Write"))
    ran = world.run(
        call("write", path="package-lock.json", content="{}"), call("write", path="package.json", content="{}")
    )
    assert [result.status for result in ran.results] == ["denied", "ok"]
    assert not (world.workspace / "package-lock.json").exists()


def test_commands_are_validated_by_a_script_of_the_project(world: HookWorld):
    world.workspaces(hook("PreToolUse", script(world, "validate.py", VALIDATOR), "Bash"))
    ran = world.run(call("shell", command="grep -r x ."), call("shell", command="echo x | grep x"))
    assert [result.status for result in ran.results] == ["denied", "ok"]
    assert "use rg instead of grep" in ran.results[0].content


def test_reading_documentation_needs_no_question(world: HookWorld):
    (world.workspace / "README.md").write_text("hello")
    world.users(hook("PreToolUse", script(world, "approve.py", APPROVER), "Read"))
    ran = world.run(call("read", path="README.md"), permission_mode="manual", answer=False)
    assert not ran.of(ev.ApprovalRequested)
    assert "hello" in ran.results[0].content


def test_the_users_desktop_is_notified(world: HookWorld, monkeypatch: pytest.MonkeyPatch):
    sender = world.home / "bin" / "notify-send"
    sender.parent.mkdir()
    sender.write_text(f'#!/bin/sh\necho "$@" >> "{world.home}/notes"\n')
    sender.chmod(0o755)
    monkeypatch.setenv("PATH", f"{sender.parent}:{os.environ['PATH']}")
    world.users(hook("Notification", "notify-send 'Agent' 'Waiting for your input'", sandbox=False))
    world.run()
    assert (world.home / "notes").read_text() == "Agent Waiting for your input\n"


def test_a_missing_program_of_a_notification_costs_a_line(world: HookWorld):
    world.users(hook("Notification", "no-such-notifier hello"))
    ran = world.run()
    assert ran.end.outcome == "done"
    assert "could not run" in ran.said


def until(path: Path) -> None:
    end = time.monotonic() + 30
    while not path.exists() and time.monotonic() < end:
        time.sleep(0.02)
    assert path.exists()


def test_after_a_kill_during_a_hook_the_call_has_not_run_and_its_repeat_is_guarded_again(world: HookWorld):
    log = 'echo ran >> "$CLAUDE_PROJECT_DIR/log"; test -e "$CLAUDE_PROJECT_DIR/again" || sleep 60'
    world.workspaces(hook("PreToolUse", log, "Bash"))
    count = call("shell", command="echo x >> count")
    with ScriptedServer([count, count, say("done.")]) as server:
        flags = ["-w", str(world.workspace), "--base-url", server.base_url, "--model", "m", "--permission", "auto"]
        command = [sys.executable, "-m", "lmagent", "run", *flags]
        first = subprocess.Popen([*command, "go"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until(world.workspace / "log")
        first.send_signal(signal.SIGKILL)
        first.wait()
        (world.workspace / "again").touch()
        second = subprocess.run([*command, "--continue"], capture_output=True, text=True, timeout=60, check=False)
    assert second.returncode == 0, second.stderr
    assert (world.workspace / "log").read_text() == "ran\nran\n"
    assert (world.workspace / "count").read_text() == "x\n"
