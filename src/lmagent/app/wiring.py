"""Wiring: Settings → adapters → features → Host. Taking a feature out is taking its line out of `_features`."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lmagent.app import commands
from lmagent.app.clock import SystemClock
from lmagent.app.host import Host
from lmagent.app.prompt import date_note, system_text, workspace_note
from lmagent.app.registry import Registry, load_plugins
from lmagent.config.loader import Loaded, load
from lmagent.core.agent import Agent
from lmagent.engine.gate import Rules, check_rule
from lmagent.engine.toolbox import Toolbox
from lmagent.providers.openai_chat import OpenAIChat
from lmagent.providers.transport import HttpTransport, Timeouts, Transport
from lmagent.store.jsonl import JsonlStore
from lmagent.tools.artifact import read_artifact_tool
from lmagent.tools.recall import recall_tool
from lmagent.tools.registry import builtin_tools

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class HostOptions:
    """What the command line says.

    Attributes:
        workspace: the folder, when given.
        flags: settings given as flags, by name.
        record: cassette to write the model traffic to.
        replay: cassette to play the model's side from.
        attended: whether a person can answer approvals.
    """

    workspace: Path | None = None
    flags: dict[str, Any] = field(default_factory=dict[str, Any])
    record: Path | None = None
    replay: Path | None = None
    attended: bool = False


def load_settings(options: HostOptions) -> Loaded:
    """The settings of this process, with their origins."""
    flags = dict(options.flags)
    if options.workspace is not None:
        flags["workspace"] = options.workspace
    return load(os.environ, Path.cwd(), flags)


def open_host(options: HostOptions, *, say: Say) -> Host:
    """A host for the workspace that the options name; `say` shows what a person should know."""
    loaded = load_settings(options)
    for warning in loaded.warnings:
        say(f"lmagent: {warning}")
    settings = loaded.settings
    clock = SystemClock()
    transport = _transport(options)
    host = Host(
        workspace=settings.workspace,
        store=JsonlStore(settings.workspace / ".lmagent" / "sessions", clock),
        provider=_provider(loaded, transport, clock),
        base_url=settings.endpoint,
        agent=_agent(loaded),
        clock=clock,
        mode=settings.permission_mode,
        rules=_rules(loaded),
        secrets=settings.secrets,
        attended=options.attended,
    )
    host.use_transport(transport, settings.key, asks_window=settings.context_window is None)
    _features(host.registry)
    host.toolbox = Toolbox(host.registry.tools.values())
    return host


def _features(registry: Registry) -> None:
    """What this program can do. One line a feature; plugins come last and can shadow nothing."""
    for tool in builtin_tools(registry.clock):
        registry.tool(tool)
    registry.tool(read_artifact_tool(registry.records.get_blob))
    registry.tool(recall_tool(registry.records.events))
    registry.note(date_note(registry.clock))
    registry.note(workspace_note(registry.workspace))
    commands.register(registry)
    load_plugins(registry)


def _agent(loaded: Loaded) -> Agent:
    settings = loaded.settings
    return Agent(
        name="lmagent",
        system=system_text(),
        model=settings.llm_model,
        temperature=settings.llm_temperature,
        max_tokens=settings.llm_max_tokens,
        keep_thinking=not settings.thinking_model,
        limits=settings.limits,
        window=settings.window(None),
    )


def _rules(loaded: Loaded) -> Rules:
    settings = loaded.settings
    return Rules(
        allow=tuple(map(check_rule, settings.permission_allow)),
        ask=tuple(map(check_rule, settings.permission_ask)),
        deny=tuple(map(check_rule, settings.permission_deny)),
    )


def _transport(options: HostOptions) -> Transport:
    if options.replay is not None:
        from lmagent.providers.cassette import ReplayTransport

        return ReplayTransport(options.replay)
    live = HttpTransport()
    if options.record is not None:
        from lmagent.providers.cassette import RecordingTransport

        return RecordingTransport(live, options.record)
    return live


def _provider(loaded: Loaded, transport: Transport, clock: SystemClock) -> OpenAIChat:
    settings = loaded.settings
    return OpenAIChat(
        settings.endpoint,
        settings.key,
        transport=transport,
        clock=clock,
        timeouts=Timeouts(first_byte=settings.llm_timeout, idle=settings.llm_timeout),
    )
