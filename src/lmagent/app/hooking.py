"""Hooking: the hooks of a workspace for the user who writes them: listed, and tried with an example of their input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
from msgspec.json import encode

from lmagent.app.options import HostOptions, load_settings
from lmagent.app.wiring import own_hook_files, registry_of
from lmagent.config.workspace import open_workspace
from lmagent.core.errors import ConfigError
from lmagent.hooks.answers import HookRun
from lmagent.hooks.config import EVENTS, LONGEST, HookFile, matches, read_hooks
from lmagent.hooks.run import HookPlace, run_hook

_CALLS: dict[str, dict[str, Any]] = {
    "Bash": {"command": "echo example"},
    "Write": {"file_path": "example.txt", "content": "example\n"},
    "Edit": {"file_path": "example.txt", "old_string": "old", "new_string": "new"},
    "Read": {"file_path": "example.txt"},
}

_FACTS: dict[str, dict[str, Any]] = {
    "UserPromptSubmit": {"prompt": "an example"},
    "Stop": {"stop_hook_active": False, "last_assistant_message": "an example"},
    "SubagentStop": {"stop_hook_active": False},
    "SessionStart": {"source": "startup"},
    "SessionEnd": {"reason": "other"},
    "PreCompact": {"trigger": "manual", "custom_instructions": ""},
    "Notification": {"message": "an example", "title": "lmagent", "notification_type": "idle_prompt"},
}


def hook_files(workspace: Path | None) -> tuple[HookFile, ...]:
    """Return the present files with hooks."""
    loaded = load_settings(HostOptions(workspace))
    return read_hooks(loaded.workspace.path, loaded.settings.agent_data_dir, own_hook_files(loaded.settings))


def trial(workspace: Path | None, event: str, tool: str) -> list[HookRun]:
    """Run the hooks of an event that would run, one after the other, with an example of its input.

    `tool` is the called tool's name in Claude Code. Raises ConfigError: there is no such event.
    """
    if event not in EVENTS:
        raise ConfigError(f"there is no event {event[:40]!r}", fix=f"one of {', '.join(EVENTS)}")
    loaded = load_settings(HostOptions(workspace))
    registry = registry_of(open_workspace(loaded.workspace).path, loaded.settings)
    place = HookPlace(registry.workspace, registry.confined.get, registry.confined.hosts)
    calls = event in ("PreToolUse", "PostToolUse")
    hooks = [
        hook for file in hook_files(workspace) if file.state == "used" for hook in file.hooks if hook.event == event
    ]
    chosen = [hook for hook in hooks if not calls or matches(hook.matcher, (tool,))]

    def payload(root: str) -> bytes:
        facts = _FACTS.get(event, {})
        if calls:
            shown = dict(_CALLS.get(tool, {}))
            if "file_path" in shown:
                shown["file_path"] = f"{root}/{shown['file_path']}"
            facts = {"tool_name": tool, "lmagent_tool": tool.lower(), "tool_input": shown, "tool_use_id": "example"}
        if event == "PostToolUse":
            facts["tool_response"] = {"content": "an example"}
        common = {"session_id": "example", "transcript_path": "", "cwd": root, "permission_mode": "default"}
        return encode({**common, "hook_event_name": event, **facts})

    async def run() -> list[HookRun]:
        try:
            return [await run_hook(hook, place, payload, LONGEST) for hook in chosen]
        finally:
            await registry.confined.aclose()

    return anyio.run(run)
