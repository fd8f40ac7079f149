"""Wiring: Settings → adapters → features → Host. To remove a feature, remove its line from `features`."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

from lmagent.app import children, planning
from lmagent.app.clock import SystemClock
from lmagent.app.confined import Confined
from lmagent.app.environment import ENVIRONMENT_NOTE
from lmagent.app.host import Host
from lmagent.app.prompt import DATE_NOTE, date_note, instructions_note, set_options, workspace_note
from lmagent.app.registry import OpenRecords, Registry, load_plugins
from lmagent.app.undoing import kept_changes
from lmagent.config.loader import Loaded, load
from lmagent.config.settings import Settings
from lmagent.config.workspace import open_workspace
from lmagent.core.agent import Agent
from lmagent.core.commands import SetMode, SetModel, SetOptions
from lmagent.core.errors import WorkspaceError
from lmagent.core.ids import new_id
from lmagent.core.messages import ToolCall
from lmagent.core.model import Sampling, split_name
from lmagent.core.toolevents import OWN_CALL
from lmagent.engine.session import Session
from lmagent.engine.toolbox import Invocation, Toolbox
from lmagent.policy.gate import Rules, check_rule
from lmagent.proof.feature import Proof, ProofChoices
from lmagent.providers.retry import RetryPolicy
from lmagent.providers.served import Endpoint, Served
from lmagent.providers.transport import SLOWEST, HttpTransport, Timeouts, Transport
from lmagent.store.jsonl import JsonlStore
from lmagent.tools.git import git_tools
from lmagent.tools.python import python_tool
from lmagent.tools.python.kernel import Kernels
from lmagent.tools.recall import read_artifact_tool, recall_tool
from lmagent.tools.registry import builtin_tools
from lmagent.tools.shell import Shell, ShellRunner, shell_tool
from lmagent.tools.shell.jobs import Jobs, jobs_tool

if TYPE_CHECKING:
    from lmagent.app.ownserver import OwnServer
    from lmagent.providers.cassette import ReplayTransport

Say = Callable[[str], None]


class HostOptions(Struct, frozen=True):
    """The options of the command line.

    Attributes:
        flags: settings given as flags, by name.
        record: cassette to write the model traffic to.
        replay: cassette to play the model's side from.
        attended: whether a user can answer approvals.
    """

    workspace: Path | None = None
    flags: dict[str, Any] = field(default_factory=dict[str, Any])
    record: Path | None = None
    replay: Path | None = None
    attended: bool = False


class Configuration(Struct, frozen=True):
    """The source of a host's settings: those at its start, and a function that reads the present ones."""

    start: Loaded
    read: Callable[[], Loaded]
    agent_of: Callable[[Settings], Agent]


def load_settings(options: HostOptions) -> Loaded:
    flags = dict(options.flags)
    if options.workspace is not None:
        flags["workspace"] = options.workspace
    return load(os.environ, _current_folder(options), flags)


def _current_folder(options: HostOptions) -> Path:
    """Return the current folder; if it was deleted, the workspace, provided that its path is absolute."""
    try:
        return Path.cwd()
    except OSError:
        if options.workspace is not None and options.workspace.is_absolute():
            return options.workspace
        raise WorkspaceError(
            "the current folder does not exist any more", fix="cd to one that does, or name one: lmagent -w /its/path"
        ) from None


async def open_host(options: HostOptions, *, say: Say) -> Host:
    """Return a host for the workspace in the options; `say` shows a line to the user.

    Raises:
        LmagentError: the configuration, the workspace or a plugin is at fault.
    """
    loaded = load_settings(options)
    for warning in loaded.warnings:
        say(f"lmagent: {warning.text}" + (f"\n  → {warning.fix}" if warning.fix else ""))
    workspace = open_workspace(loaded.workspace)
    if workspace.note:
        say(workspace.note)
    settings = loaded.settings
    live = _logged(HttpTransport(), workspace.path, settings)
    own: OwnServer | None = None
    if not settings.given_endpoint and not split_name(settings.llm_model)[0] and options.replay is None:
        settings, own = await _with_found_server(settings, live, say)
    clock, replay = SystemClock(), _replay(options)
    store = JsonlStore(workspace.path / ".lmagent" / "sessions", clock)
    sessions: dict[str, Session] = {}
    confined = Confined(workspace.path, settings)
    registry = Registry(workspace.path, clock, OpenRecords(store, sessions), confined, settings=settings)
    if own is not None:
        registry.closers.append(own.aclose)
    features(registry, say)
    return Host(
        workspace=workspace.path,
        store=store,
        served=_served(settings, replay or _recorded(live, options), clock),
        settings=settings,
        agent=_agent(settings),
        clock=clock,
        rules=permission_rules(loaded, registry),
        transport=live,
        registry=registry,
        toolbox=Toolbox(registry.offered()),
        sessions=sessions,
        initial_commands=_initial_commands(options, settings),
        attended=options.attended,
        snapshots=kept_changes(workspace.path, settings),
        replay=replay,
        config=Configuration(loaded, partial(load_settings, options), _agent),
    )


def features(registry: Registry, say: Say = lambda _: None) -> None:
    """Register all features, one line each; plugins come last and can shadow nothing."""
    for tool in builtin_tools(registry.clock):
        registry.tool(tool)
    registry.tool(read_artifact_tool(registry.records.get_blob))
    registry.tool(recall_tool(registry.records.events, registry.records.get_blob))
    commands_in_a_sandbox(registry)
    registry.note(date_note(registry.clock))
    registry.note(workspace_note(registry.workspace, say, lambda: registry.profile.instructions))
    registry.command_modules += [
        "lmagent.app.commands",
        "lmagent.app.commands_settings",
        "lmagent.app.commands_options",
    ]
    registry.command_modules.append("lmagent.app.crontab")
    registry.orders[SetOptions] = set_options
    registry.session_notes.append(partial(instructions_note, registry.records))
    registry.hides.append(lambda _: set(registry.profile.hidden))
    planning.register(registry)
    checks_of_the_work(registry)
    children.register(registry)
    load_plugins(registry)


def commands_in_a_sandbox(registry: Registry) -> None:
    spill = registry.workspace / ".lmagent" / "spill"
    jobs = Jobs(spill)
    runner = ShellRunner(registry.confined.get, registry.records.events, spill, jobs, registry.confined.hosts)
    registry.tool(shell_tool(runner))
    registry.tool(jobs_tool(jobs))
    kernels = Kernels()
    memory = registry.confined.memory_mb
    registry.tool(python_tool(registry.confined.get, kernels, memory_mb=memory))
    registry.closers.append(kernels.aclose)
    registry.busy.append(jobs.runs)
    registry.enders += [jobs.end, kernels.close]
    for tool in git_tools(registry.confined.get):
        registry.tool(tool)
    registry.session_notes.append(jobs.note)
    registry.closers.append(jobs.aclose)


def checks_of_the_work(registry: Registry) -> None:
    """Register the project's check at the end of a turn, and the verdict."""
    confined, settings, events = registry.confined, registry.settings, registry.records.events
    spill, limit = registry.workspace / ".lmagent" / "spill", settings.check_timeout
    runner = ShellRunner(confined.get, events, spill, Jobs(spill), confined.hosts, longest=limit, apart=True)
    shell = shell_tool(runner)

    def invoke(command: str) -> Invocation:
        return Invocation(ToolCall(f"{OWN_CALL}{new_id()}", shell.name, ""), shell, Shell(command, limit))

    choices = ProofChoices(settings.check, settings.check_commands, settings.require_proof)
    # Other sandboxes keep one home for all commands.
    proof = Proof(registry.workspace, events, invoke, lambda: confined.name == "bubblewrap", choices)
    registry.reviews.append(proof)


async def _with_found_server(settings: Settings, transport: Transport, say: Say) -> tuple[Settings, OwnServer | None]:
    """Without a configured model server, use the first usual one that runs, else run our own."""
    from lmagent.app.builtin import builtin_server, in_library, running_server
    from lmagent.app.reach import lists, preferred
    from lmagent.providers.discovery import discover, usual

    found = await discover(transport, usual(os.environ))
    chosen = preferred(found, settings.llm_model) if found else None
    if chosen is not None and (not settings.llm_model or lists(chosen, settings.llm_model) or not in_library(settings)):
        say(f"Found {chosen.name} at {chosen.base_url}" + _others([one.name for one in found if one is not chosen]))
        return replace(settings, llm_url=chosen.base_url), None
    if (running := running_server(settings)) is not None:
        say(f"Found lmagent's model server at {running.llm_url}")
        return running, None
    built = await builtin_server(settings)
    if built is None:
        return settings, None
    say(f"{built[0].llm_model} runs here, on the built-in engine")
    return built


def _others(names: Sequence[str]) -> str:
    return f" ({', '.join(names)} run too; choose with --base-url or LLM_URL)" if names else ""


def _initial_commands(options: HostOptions, settings: Settings) -> tuple[SetMode | SetModel, ...]:
    """Return the commands for resumed sessions: the command line wins over their logs."""
    mode = (SetMode(mode=settings.permission_mode, by="flag"),) if "permission_mode" in options.flags else ()
    model = (SetModel(model=settings.llm_model, by="flag"),) if "llm_model" in options.flags else ()
    return (*mode, *model)


def _agent(settings: Settings) -> Agent:
    return Agent(
        name="lmagent",
        system=settings.system,
        model=settings.llm_model,
        temperature=settings.llm_temperature,
        sampling=Sampling(
            settings.llm_top_p, settings.llm_frequency_penalty, settings.llm_presence_penalty, settings.llm_seed
        ),
        max_tokens=settings.llm_max_tokens,
        keep_thinking=None if settings.thinking_model is None else not settings.thinking_model,
        limits=settings.limits,
        window=settings.window(None),
    )


def permission_rules(loaded: Loaded, registry: Registry) -> Rules:
    """Return the permission rules of the settings, checked against the tools. Raise ConfigError for a rule that
    cannot be understood, or that names an unknown tool."""
    tools = {alias.lower(): tool.name for tool in reversed(registry.tools.values()) for alias in tool.aliases}
    tools |= {name.lower(): name for name in registry.tools}

    def checked(name: str) -> tuple[str, ...]:
        origins = loaded.item_origins.get(name, ())
        rules: tuple[str, ...] = getattr(loaded.settings, name)
        pairs = zip_longest(rules, origins, fillvalue="")
        return tuple(check_rule(rule, str(origin), tools=tools, root=str(registry.workspace)) for rule, origin in pairs)

    shipped = str(registry.workspace) if loaded.settings.shipped_rules else ""
    return Rules(checked("permission_allow"), checked("permission_ask"), checked("permission_deny"), shipped)


def _logged(live: Transport, workspace: Path, settings: Settings) -> Transport:
    """Return the transport, logged if the settings ask for more than unexpected errors."""
    if settings.log_level == "error" and not settings.debug:
        return live
    from lmagent.app.logs import LoggedTransport, open_log

    open_log(workspace, settings)
    return LoggedTransport(live)


def _recorded(live: Transport, options: HostOptions) -> Transport:
    if options.record is None:
        return live
    from lmagent.providers.cassette import RecordingTransport

    return RecordingTransport(live, options.record)


def _replay(options: HostOptions) -> ReplayTransport | None:
    if options.replay is None:
        return None
    from lmagent.providers.cassette import ReplayTransport

    return ReplayTransport(options.replay, ignore=(DATE_NOTE, ENVIRONMENT_NOTE))


def _served(settings: Settings, transport: Transport, clock: SystemClock) -> Served:
    limit = settings.llm_timeout
    per_token = SLOWEST if limit >= Timeouts().first_byte else 0.0  # a user who sets less patience gets less
    endpoint = Endpoint(
        settings.endpoint,
        settings.key,
        window=settings.context_window,
        parallel=settings.llm_parallel,
        timeouts=Timeouts(first_byte=limit, idle=limit, per_token=per_token),
        retries=RetryPolicy(tries=max(1, settings.llm_max_retries), delay=settings.llm_retry_delay),
    )

    def elsewhere(provider: str) -> Endpoint:
        from lmagent.app.servers import endpoint_of  # few sessions switch servers

        return endpoint_of(settings, provider)

    return Served(endpoint, transport, clock, elsewhere)
