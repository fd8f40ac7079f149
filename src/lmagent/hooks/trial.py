"""Trial: the hooks of an event, run with an example of its input, for the user who writes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.json import encode

from lmagent.hooks.answers import HookRun
from lmagent.hooks.config import LONGEST, HookFile, matches
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


async def try_hooks(files: Sequence[HookFile], place: HookPlace, event: str, tool: str) -> list[HookRun]:
    """Run the hooks of an event that would run, one after the other; `tool` is the called tool's Claude name."""
    calls = event in ("PreToolUse", "PostToolUse")
    hooks = [hook for file in files if file.state == "used" for hook in file.hooks if hook.event == event]
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

    return [await run_hook(hook, place, payload, LONGEST) for hook in chosen]
