"""Wiring: Settings → adapters → features → Host. To remove a feature, remove its line from `features`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from lmagent.app.clock import SystemClock
from lmagent.app.confined import Confined
from lmagent.app.host import Host
from lmagent.app.kept import kept_changes
from lmagent.app.options import HostOptions, load_settings
from lmagent.app.prompt import (
    DATE_NOTE,
    ENVIRONMENT_NOTE,
    Environment,
    date_note,
    instructions_note,
    set_options,
)
from lmagent.app.registry import TAKEN, Registry, load_plugins
from lmagent.app.subagents import children
from lmagent.cluster import open_store, shared_clock
from lmagent.config.files import read_small
from lmagent.config.loader import Loaded
from lmagent.config.paths import config_file, home_dir
from lmagent.config.settings import Settings
from lmagent.config.trust import HOOK_FILES, MCP_FILES, is_trusted
from lmagent.config.workspace import open_workspace
from lmagent.core.agent import DEFAULT_AGENT, AgentConfig, NamedAgent
from lmagent.core.commands import Mark, SetMode, SetModel, SetOptions
from lmagent.core.errors import ConfigError
from lmagent.core.events import OWN_CALL, DurableEvent, SessionMarked
from lmagent.core.ids import new_id
from lmagent.core.messages import ToolCall
from lmagent.core.model import Sampling, split_name
from lmagent.core.ports import Clock
from lmagent.core.tool import Tool
from lmagent.core.work import Budget
from lmagent.engine.session import Session
from lmagent.engine.toolbox import Invocation, Toolbox
from lmagent.identity.feature import NOTE as IDENTITY
from lmagent.identity.feature import Identity
from lmagent.memory.feature import NOTE, MemoryFeature, memory_folders
from lmagent.notebook.feature import Projects
from lmagent.planning.feature import Choices, Planning
from lmagent.policy.gate import Request, Rules, judge
from lmagent.policy.paths import located
from lmagent.proof.feature import Proof, ProofChoices
from lmagent.providers.retry import RetryPolicy
from lmagent.providers.served import Endpoint, Served
from lmagent.providers.transport import SLOWEST, HttpTransport, Timeouts, Transport
from lmagent.sandbox.environment import find_browser, find_program
from lmagent.skills.feature import NOTE as SKILLS
from lmagent.skills.feature import SkillPlaces, Skills
from lmagent.skills.tools import Confinement
from lmagent.tools.git import git_tools
from lmagent.tools.python import python_tool
from lmagent.tools.python.kernel import Kernels
from lmagent.tools.recall import read_artifact_tool, recall_tool
from lmagent.tools.registry import builtin_tools
from lmagent.tools.shell import Shell, ShellNetwork, ShellRunner, shell_tool
from lmagent.tools.shell.jobs import Jobs, jobs_tool
from lmagent.web.tools import Browser, WebTools, search_tool

if TYPE_CHECKING:
    from lmagent.app.servers.ownserver import OwnServer
    from lmagent.mcp.spec import ServerSpec
    from lmagent.memory.memory import Memories
    from lmagent.providers.cassette import ReplayTransport

Say = Callable[[str], None]


class Configuration(Struct, frozen=True):
    """The source of a host's settings: those at its start, and a function that reads the present ones."""

    start: Loaded
    read: Callable[[], Loaded]
    agent_of: Callable[[Settings], AgentConfig]


async def open_host(options: HostOptions, *, say: Say) -> Host:
    """Return a host for the workspace in the options; `say` shows a line to the user."""
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
        from lmagent.app.servers.found import with_found_server

        settings, own = await with_found_server(settings, live, say)
    registry, replay = registry_of(workspace.path, settings, options.project), _replay(options)
    if own is not None:
        registry.closers.append(own.aclose)
    if options.project is not None:
        from lmagent.app.agentproject import begin_project  # few hosts are of a project

        begin_project(registry, options.project)
    features(registry, say, options.mcp_servers, options.tools)
    own_tools: tuple[Tool, ...] = ()
    if registry.project is not None:
        from lmagent.app.agentproject import use_project

        own_tools = (await use_project(registry, registry.project, say)).own
    registry.host = Host(
        workspace=workspace.path,
        store=registry.store,
        served=_served(settings, replay or _recorded(live, options), registry.clock),
        settings=settings,
        config=Configuration(loaded, partial(load_settings, options), _agent),
        agent=_agent(settings),
        clock=registry.clock,
        rules=permission_rules(loaded, registry, own_tools),
        transport=live,
        registry=registry,
        toolbox=Toolbox(registry.offered(), registry.outside),
        sessions=registry.sessions,
        machine=Environment(workspace.path, settings, dict(os.environ)),
        snapshots=kept_changes(workspace.path, settings),
        initial_commands=_initial_commands(options, settings),
        attended=options.attended,
        replay=replay,
        named=registry.agents.get(options.agent),
        only=options.project is not None,
    )
    return registry.host


def open_registry(loaded: Loaded) -> Registry:
    """Return the tools and features of a workspace for a call without a session."""
    registry = registry_of(open_workspace(loaded.workspace).path, loaded.settings)
    features(registry)
    return registry


def registry_of(workspace: Path, settings: Settings, project: Path | None = None) -> Registry:
    """Return an empty registry. `project` is the folder of the agent, which it must not change."""
    clock = shared_clock(settings, SystemClock())
    store = open_store(workspace, settings, clock)
    projects = (project,) if project is not None and project.is_relative_to(workspace) else ()
    confined = Confined(workspace, settings, tuple(folder.relative_to(workspace) for folder in projects))
    return Registry(workspace, clock, store, confined, settings)


def features(
    registry: Registry,
    say: Say = lambda _: None,
    editors: Sequence[ServerSpec] = (),
    given: Sequence[Tool] = (),
) -> None:
    """Register all features, one line each; plugins and skills come last and can shadow nothing."""
    for tool in builtin_tools(registry.clock):
        registry.tool(tool)
    registry.tool(read_artifact_tool(registry.get_blob))
    registry.tool(recall_tool(registry.events, registry.get_blob))
    commands_in_a_sandbox(registry)
    registry.note(date_note(registry.clock))
    identity_files(registry, say)
    agents_by_name(registry, say)
    registry.command_modules += [f"lmagent.app.commands.{name}" for name in ("session", "settings", "work", "mcp")]
    registry.orders |= {SetOptions: set_options, Mark: _mark}
    registry.session_notes.append(partial(instructions_note, registry))
    registry.hides.append(lambda _: set(registry.profile.hidden))
    tasks_and_plans(registry)
    checks_of_the_work(registry)
    long_term_memory(registry)
    project_planner(registry)
    children.register(registry)
    web_pages(registry)
    data_files(registry)
    mcp_servers(registry, say, editors)
    registry.command_modules.append("lmagent.app.commands.skills")  # before plugins, which take no command's name
    load_plugins(registry)
    tools_of_the_program(registry, given)
    skills(registry)
    users_hooks(registry, say)


def tools_of_the_program(registry: Registry, given: Sequence[Tool]) -> None:
    """Register the tools of a Python program; like a plugin's, they take the name of no other tool."""
    registry.loads_plugins = True
    for tool in given:
        try:
            registry.tool(tool)
        except ConfigError as taken:
            raise ConfigError(taken.message, fix='give yours another name: @tool(name="…")') from None
        registry.given.append(tool.name)
    registry.loads_plugins = False


async def _mark(session: Session, command: Mark) -> DurableEvent:
    return await session.record(SessionMarked(pinned=command.pinned, archived=command.archived), sync=True)


def commands_in_a_sandbox(registry: Registry) -> None:
    spill = registry.workspace / ".lmagent" / "spill"
    jobs = Jobs(spill)
    confined = registry.confined
    network = ShellNetwork(confined.hosts, lambda: confined.packages)
    runner = ShellRunner(confined.get, registry.events, spill, jobs, network)
    registry.tool(shell_tool(runner))
    registry.tool(jobs_tool(jobs))
    kernels = Kernels(spill)
    registry.tool(python_tool(registry.confined.get, kernels))
    registry.closers.append(kernels.aclose)
    registry.busy.append(jobs.runs)
    registry.enders += [jobs.end, kernels.close]
    for tool in git_tools(registry.confined.get):
        registry.tool(tool)
    registry.session_notes.append(jobs.note)
    registry.closers.append(jobs.aclose)


def tasks_and_plans(registry: Registry) -> None:
    settings = registry.settings
    choices = Choices(
        settings.enable_todo_tracking,
        settings.enable_plan_enforcement,
        Budget(settings.deep_steps, settings.deep_tokens),
        settings.approve_plans,
        lambda: registry.profile.name == "4k",
    )
    planning = Planning(registry.session, registry.events, choices)
    for tool in planning.tools:
        registry.tool(tool)
    registry.hides.append(lambda _: set(planning.hidden))
    registry.session_notes += planning.notes
    registry.reviews.append(planning)
    registry.fences.append(planning.fence)
    registry.orders.update(planning.orders)
    registry.openers.append(planning.opened)


def identity_files(registry: Registry, say: Say) -> None:
    data_dir, workspace = registry.settings.agent_data_dir, registry.workspace
    identity = Identity(workspace, say, lambda: registry.profile.instructions, lambda: is_trusted(data_dir, workspace))
    registry.freeze(IDENTITY, identity.note)
    registry.facts.append(identity.facts)
    identity.check()
    registry.command_modules.append("lmagent.app.commands.identity")


def agents_by_name(registry: Registry, say: Say) -> None:
    """Register the agents in the files of the user and of the workspace; without such a folder, nothing is loaded."""
    workspace, data_dir = registry.workspace, registry.settings.agent_data_dir
    registry.agents.checked = partial(_with_checked_rules, registry)
    if registry.project is not None:
        return
    own = config_file(os.environ).parent
    places = ((own, ("agents",)), *((workspace, (folder, "agents")) for folder in (".lmagent", ".claude")))
    for root, parts in places:
        if not any(name.endswith((".md", ".toml")) for name in _names(root.joinpath(*parts))):
            continue
        from lmagent.projects.agentfiles import AgentFiles  # few users have one

        counts = (lambda: True) if root is own else (lambda: is_trusted(data_dir, workspace))
        registry.agents.sources.append(AgentFiles(root, parts, counts, say, own=root is own))


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def long_term_memory(registry: Registry) -> None:
    """Register the memory: its tools, the pinned part as a note, and /memory."""
    settings, workspace, clock = registry.settings, registry.workspace, registry.clock
    if not settings.enable_memory:
        return

    def opened() -> Memories:
        from lmagent.memory.opening import open_memories

        return open_memories(workspace, settings, clock)

    feature = MemoryFeature(
        opened,
        memory_folders(workspace, settings.agent_data_dir),
        clock,
        registry.events,
        lambda: is_trusted(settings.agent_data_dir, workspace),
        lambda: bool(registry.profile.below),
    )
    for tool in feature.tools:
        registry.tool(tool)
    registry.freeze(NOTE, feature.note)
    registry.command_modules.append("lmagent.app.commands.memory")
    registry.closers.append(feature.aclose)


def web_pages(registry: Registry) -> None:
    """Register the tools that read the web, and search it if a search engine is configured."""
    settings = registry.settings
    kinds = (False, True) if settings.fetch_stealth and find_spec("curl_cffi") is not None else (False,)
    for stealth in kinds:
        tools = WebTools(registry.confined.hosts, registry.clock, stealth=stealth)
        registry.tool(tools.fetch())
        registry.enders.append(tools.end)
        if not stealth and (browser := own_browser(registry)):
            registry.tool(tools.fetch_js(browser))
            registry.tool(tools.screenshot(browser))
            registry.hides.append(lambda _: {"web_fetch_js", "web_screenshot"})  # named where they help
    if settings.search_endpoint:
        registry.tool(search_tool(settings.search_endpoint))


def own_browser(registry: Registry) -> Browser | None:
    """Return the machine's browser, if it can be run in a sandbox with a proxy."""
    settings, confined, workspace = registry.settings, registry.confined, registry.workspace
    if settings.sandbox not in ("auto", "bubblewrap") or sys.platform != "linux":
        return None
    if find_program("bwrap", os.environ, workspace) is None:
        return None
    program = find_browser(settings.browser, os.environ, workspace)
    return Browser(program, confined.beside) if program else None


def project_planner(registry: Registry) -> None:
    """Register the project of the workspace: its tool, its note, and /project."""
    data_dir, workspace = registry.settings.agent_data_dir, registry.workspace
    feature = Projects(workspace, registry.clock, registry.session, lambda: is_trusted(data_dir, workspace))
    registry.tool(feature.tool)
    registry.hides.append(lambda _: {feature.tool.name})
    registry.session_notes += [feature.note, feature.tool_note]
    registry.openers.append(feature.opened)
    registry.command_modules.append("lmagent.app.commands.project")


def data_files(registry: Registry) -> None:
    """Register the tools that look into tables and draw them."""
    from lmagent.data.feature import DataPlace, plot_tool, view_tool

    place = DataPlace(registry.workspace, registry.confined.beside, lambda: registry.confined.name)
    registry.tool(view_tool(place))
    registry.tool(plot_tool(place, partial(_why_hidden, registry)))
    registry.hides.append(lambda _: {"data_plot"})  # the line of data_view names it


def _why_hidden(registry: Registry, session: str, path: str) -> str:
    """Return which rule keeps a session from looking into a file; empty if no rule does."""
    settings, open_session = registry.settings, registry.sessions.get(session)
    own = Rules(settings.permission_allow, settings.permission_ask, settings.permission_deny, str(registry.workspace))
    rules, grants = (open_session.wiring.rules, open_session.state.grants) if open_session else (own, ())
    asked = Request("data_view", "read", located(str(registry.workspace), (path,)))
    verdict = judge(asked, "auto", rules, grants)
    return "" if verdict.decision == "allow" else verdict.reason


def mcp_servers(registry: Registry, say: Say, editors: Sequence[ServerSpec]) -> None:
    """Register the tools and prompts of MCP servers, the configured ones and an editor's. Without servers, nothing of
    it is loaded."""
    workspace, settings, project = registry.workspace, registry.settings, registry.project
    files = (config_file(os.environ).with_name("mcp.json"), *(workspace / name for name in MCP_FILES))
    if project is not None:
        from lmagent.app.agentproject import project_servers

        files, editors = (), tuple(project_servers(project))
    if not settings.enable_mcp or not (editors or any(map(os.path.lexists, files))):
        return
    from lmagent.app.mcpservers import use_servers
    from lmagent.mcp.servers import open_servers

    servers = open_servers(workspace, settings, registry.confined.request(), editors, configured=project is None)
    for problem in servers.problems:
        say(f"lmagent: {problem}")
    if servers.states():
        use_servers(registry, servers)


def skills(registry: Registry) -> None:
    """Register the skills that the user allowed; last of all tools, so that they take no tool's name."""
    workspace, data_dir = registry.workspace, registry.settings.agent_data_dir
    taken = set(TAKEN)
    taken.update(name for tool in registry.tools.values() for name in (tool.name, *tool.aliases))
    places = SkillPlaces(workspace, Path.home(), data_dir, lambda: is_trusted(data_dir, workspace), frozenset(taken))
    if (project := registry.project) is not None:
        places = replace(places, project=project.path / "skills", chosen=frozenset(project.spec.skills))
    feature = Skills(places, Confinement(registry.confined.get, registry.settings.skill_timeout))
    for tool in feature.tools:
        registry.tool(tool)
    registry.freeze(SKILLS, feature.note)
    registry.skills = feature


def users_hooks(registry: Registry, say: Say) -> None:
    """Register the hooks of the user and of the workspace, if any file names one."""
    registry.command_modules.append("lmagent.app.commands.hooks")
    settings, workspace = registry.settings, registry.workspace
    own = own_hook_files(settings)
    if not any(map(_names_hooks, (*own, *(workspace / name for name in HOOK_FILES)))):
        return
    from lmagent.hooks.config import read_hooks
    from lmagent.hooks.feature import HookFeature
    from lmagent.hooks.run import HookPlace
    from lmagent.hooks.show import problems

    files = read_hooks(workspace, settings.agent_data_dir, own)
    for line in problems(files):
        say(f"lmagent: {line}")
    place = HookPlace(workspace, registry.confined.get, registry.confined.hosts)
    feature = registry.hooks = HookFeature(files, place, say)
    registry.reviews.append(feature)  # last, so that Stop hooks run when the turn would end
    registry.enders.append(feature.end)
    registry.closers.append(feature.aclose)


def own_hook_files(settings: Settings) -> tuple[Path, ...]:
    """Return the user's own files that may name hooks."""
    own = config_file(os.environ).with_name("hooks.json")
    return (own, home_dir(os.environ) / ".claude" / "settings.json") if settings.claude_hooks else (own,)


def _names_hooks(path: Path) -> bool:
    try:
        return b"hooks" in (read_small(path) or b"")
    except ConfigError:
        return True  # reported with the others


def checks_of_the_work(registry: Registry) -> None:
    """Register the project's check at the end of a turn, and the verdict."""
    confined, settings, events = registry.confined, registry.settings, registry.events
    spill, limit = registry.workspace / ".lmagent" / "spill", settings.check_timeout
    network = ShellNetwork(confined.hosts, lambda: confined.packages)
    runner = ShellRunner(confined.get, events, spill, Jobs(spill), network, longest=limit, apart=True)
    shell = shell_tool(runner)

    def invoke(command: str) -> Invocation:
        return Invocation(ToolCall(f"{OWN_CALL}{new_id()}", shell.name, ""), shell, Shell(command, limit))

    choices = ProofChoices(settings.check, settings.check_commands, settings.require_proof)
    # Other sandboxes keep one home for all commands.
    proof = Proof(registry.workspace, events, invoke, lambda: confined.name == "bubblewrap", choices)
    registry.reviews.append(proof)


def _initial_commands(options: HostOptions, settings: Settings) -> tuple[SetMode | SetModel, ...]:
    """Return the commands for resumed sessions: the command line wins over their logs."""
    commands = {
        "permission_mode": SetMode(mode=settings.permission_mode, by="flag"),
        "llm_model": SetModel(model=settings.llm_model, by="flag"),
    }
    return tuple(command for name, command in commands.items() if name in options.flags)


def _agent(settings: Settings) -> AgentConfig:
    return AgentConfig(
        name=DEFAULT_AGENT,
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


def permission_rules(loaded: Loaded, registry: Registry, own: Sequence[Tool] = ()) -> Rules:
    """Return the permission rules of the settings, checked against the tools; `own` are those of a project. Raise
    ConfigError for a rule that cannot be understood, or that names an unknown tool."""

    def checked(name: str) -> tuple[str, ...]:
        rules: tuple[str, ...] = getattr(loaded.settings, name)
        pairs = zip_longest(rules, loaded.item_origins.get(name, ()), fillvalue="")
        return tuple(registry.rule(rule, str(origin), own) for rule, origin in pairs)

    shipped = str(registry.workspace) if loaded.settings.shipped_rules else ""
    fixed = tuple(f"effect:write(./{place.as_posix()}/**)" for place in registry.confined.fixed)
    return Rules(checked("permission_allow"), checked("permission_ask"), (*checked("permission_deny"), *fixed), shipped)


def _with_checked_rules(registry: Registry, agent: NamedAgent) -> NamedAgent:
    """Return an agent with its permission rules in their plain form. Raise ConfigError."""

    def checked(rules: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(registry.rule(rule, f"the agent {agent.name}", agent.own) for rule in rules)

    return replace(agent, allow=checked(agent.allow), ask=checked(agent.ask), deny=checked(agent.deny))


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
    return player(options.replay) if isinstance(options.replay, Path) else options.replay


def player(cassette: Path) -> ReplayTransport:
    """Return the transport that plays a cassette on any machine and day."""
    from lmagent.providers.cassette import ReplayTransport

    return ReplayTransport(cassette, ignore=(DATE_NOTE, ENVIRONMENT_NOTE))


def _served(settings: Settings, transport: Transport, clock: Clock) -> Served:
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
        from lmagent.app.servers.table import endpoint_of  # few sessions switch servers

        return endpoint_of(settings, provider)

    return Served(endpoint, transport, clock, elsewhere)
