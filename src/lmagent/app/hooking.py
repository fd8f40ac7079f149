"""Hooking: the hooks of a workspace for the user: listed, and tried."""

from __future__ import annotations

from pathlib import Path

import anyio

from lmagent.app.options import HostOptions, load_settings
from lmagent.app.wiring import own_hook_files, registry_of
from lmagent.config.workspace import open_workspace
from lmagent.core.errors import ConfigError
from lmagent.hooks.answers import HookRun
from lmagent.hooks.config import EVENTS, HookFile, read_hooks
from lmagent.hooks.run import HookPlace
from lmagent.hooks.trial import try_hooks


def hook_files(workspace: Path | None) -> tuple[HookFile, ...]:
    """Return the present files with hooks."""
    loaded = load_settings(HostOptions(workspace))
    return read_hooks(loaded.workspace.path, loaded.settings.agent_data_dir, own_hook_files(loaded.settings))


def trial(workspace: Path | None, event: str, tool: str) -> list[HookRun]:
    """Run the hooks of an event with an example. Raise ConfigError if there is no such event."""
    if event not in EVENTS:
        raise ConfigError(f"there is no event {event[:40]!r}", fix=f"one of {', '.join(EVENTS)}")
    loaded = load_settings(HostOptions(workspace))
    registry = registry_of(open_workspace(loaded.workspace).path, loaded.settings)
    place = HookPlace(registry.workspace, registry.confined.get, registry.confined.hosts)

    async def run() -> list[HookRun]:
        try:
            return await try_hooks(hook_files(workspace), place, event, tool)
        finally:
            await registry.confined.aclose()

    return anyio.run(run)
