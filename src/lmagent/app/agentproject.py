"""Agent project: a host whose new sessions have the agent of a project's folder, with the tools in it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import to_builtins
from msgspec.structs import replace

from lmagent.app.agentpackages import installed_packages
from lmagent.app.options import HostOptions, load_settings
from lmagent.app.registry import TAKEN, Registry
from lmagent.core.agent import NamedAgent
from lmagent.core.errors import ConfigError
from lmagent.projects.agentfiles import agents_of
from lmagent.projects.archive import NPM_LOCK, PYTHON_LOCK
from lmagent.projects.load import AgentFolder, agent_of, env_file_of, load_folder, tool_rows
from lmagent.projects.spec import Gpu
from lmagent.projects.tools.own import own_tools
from lmagent.projects.tools.program import located
from lmagent.projects.tools.spec import ToolPlace

if TYPE_CHECKING:
    from lmagent.mcp.spec import ServerSpec

FILES = "files"
"""The folder of a project whose content each new workspace of the agent begins with."""


def with_settings(options: HostOptions, folder: AgentFolder) -> HostOptions:
    """Return options for a host with the project's agent. What the user has set wins over what agent.yaml says."""
    spec, loaded = folder.spec, load_settings(options)
    settings, flags = loaded.settings, dict(options.flags)
    if spec.api.url and not settings.given_endpoint:
        flags["llm_url"] = spec.api.url
    if spec.api.key_env and spec.api.url == flags.get("llm_url"):
        flags["llm_api_key"] = os.environ.get(spec.api.key_env, "")
    if not isinstance(spec.model, str) and spec.model.context_window and settings.context_window is None:
        flags["context_window"] = spec.model.context_window
    if settings.log_level == "error" and spec.logging.level != "error":
        flags["log_level"] = spec.logging.level
    return replace(options, flags=flags, project=folder.path, agent=folder.slug)


def begin_project(registry: Registry, path: Path) -> None:
    """Let a program have the sub-agents, skills and servers of a project, and no others. Raise ConfigError."""
    folder, workspace = load_folder(path), registry.workspace
    if workspace.is_relative_to(folder.path):
        what = f"the workspace {workspace} is in the agent's own folder, so it could change its tools"
        raise ConfigError(what, fix="name another one with --workspace; without it, the agent has one of its own")
    registry.project, agents = folder, agents_of(folder)
    registry.agents.sources.append(lambda: agents)


async def use_project(registry: Registry, folder: AgentFolder, say: Callable[[str], None]) -> NamedAgent:
    """Register the agent of a project; `say` shows facts about its tools. Raise ConfigError."""
    confined, env = registry.confined, variables_of(folder, os.environ)
    registry.secrets += [env[name] for name, one in folder.spec.env.items() if one.secret and env.get(name)]
    data = registry.settings.agent_data_dir
    packages = await installed_packages(folder.path, data, confined, say)
    place = ToolPlace(
        registry.workspace,
        confined.get,
        lambda: confined.name,
        confined.request,
        builtin=tuple(registry.tools.values()),
        reserved=TAKEN,
        hosts=folder.spec.network.hosts,
        env=env,
        kept=data / "agent-tools",
        libraries=packages.libraries,
        modules=packages.modules,
    )
    own = await own_tools(folder.path, tool_rows(folder.spec), place)
    for fact in own.facts:
        say(fact)
    _require_skills(registry, folder)
    if folder.spec.gpu != Gpu():
        registry.settlers.append(GpuRequest(registry, folder.spec.gpu, say).settle)
    agent = agent_of(folder, own.tools)
    agents = (agent, *(_with_tools(each, agent) for each in agents_of(folder)))
    registry.agents.sources[:] = [lambda: agents]
    return agent


def _with_tools(agent: NamedAgent, parent: NamedAgent) -> NamedAgent:
    """Return a sub-agent with the own tools that it names; without a choice, it has the tools of its parent."""
    if agent.tools is None:
        return replace(agent, tools=parent.tools, own=parent.own, servers=parent.servers)
    return replace(agent, own=tuple(tool for tool in parent.own if tool.name in agent.tools))


def _require_skills(registry: Registry, folder: AgentFolder) -> None:
    """Raise ConfigError for a skill of the project that cannot be used."""
    from lmagent.app.skilling import skills_of

    for number, name in enumerate(folder.spec.skills):
        if (skill := skills_of(registry).shelf.find(name)).state != "enabled":
            raise folder.file.wrong(("skills", number), f"the skill {name} is {skill.state}: {skill.reason}", "mend it")


def project_servers(folder: AgentFolder) -> Iterator[ServerSpec]:
    """Yield the MCP servers of a project, with the values of its variables.

    Raises ConfigError, with line and column, for one that cannot be used.
    """
    from lmagent.mcp.config import given_server  # few projects have servers

    env = variables_of(folder, os.environ)
    inner = (path for path in folder.path.iterdir() if path.is_dir() and not path.is_symlink())
    seen = tuple(str(path) for path in inner if not path.name.startswith("."))
    for name, server in folder.spec.mcp_servers.items():
        written = {key: value for key, value in to_builtins(server).items() if value}
        written["command"], *written["args"] = (located(word, folder.path) for word in (server.command, *server.args))
        try:
            yield given_server(name, written, env, () if server.url else seen)
        except ConfigError as wrong:
            raise folder.file.wrong(("mcp_servers", name), f"{name}: {wrong.message}", wrong.fix) from None


class GpuRequest:
    """Gives `gpu` of a project to lmagent's model server, for a model that it has not loaded; else it is shown, once.

    A model that is loaded stays as it is: others may use it.
    """

    def __init__(self, registry: Registry, gpu: Gpu, say: Callable[[str], None]) -> None:
        self._registry, self._say, self._is_shown = registry, say, False
        self.options = gpu_options(gpu)

    async def settle(self) -> None:
        host = self._registry.host
        if host is None or host.replay is not None:
            return
        from lmagent.core.errors import ProviderError
        from lmagent.providers.loading import change

        text, fix = "the author loaded the model with", "set this in your model server (docs/model-server.md)"
        name = host.parts(host.named).agent.model
        with suppress(ProviderError):  # the first request reports it
            facts = await host.served.facts(name)
            model = name or (facts.model.id if facts.model is not None else "")
            if facts.dialect == "lmagent" and model:
                endpoint, model = host.served.at(model)
                asked = {**self.options, "now": False}
                loaded = await change(host.transport, endpoint, facts.dialect, "load", model, asked)
                if all(loaded.get(option) == value for option, value in self.options.items()):
                    return
                if loaded.get("engine") != "upstream":
                    given = " ".join(f"--{option.replace('_', '-')} {value}" for option, value in self.options.items())
                    text, fix = f"{model} is loaded already, and not with", f"lmagent models load {model} {given}"
            if not self._is_shown and facts.reached:
                self._is_shown = True
                self._say(f"{text} {_listed(self.options)}: {fix}")


def gpu_options(gpu: Gpu) -> dict[str, int | str]:
    """Return `gpu` of agent.yaml as the options of a load."""
    options: dict[str, int | str] = {}
    if gpu.n_gpu_layers is not None:
        options["gpu_layers"] = gpu.n_gpu_layers
    if gpu.flash_attn is not None:
        options["flash_attention"] = "on" if gpu.flash_attn else "off"
    return options


def _listed(options: Mapping[str, int | str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in options.items())


def variables_of(folder: AgentFolder, env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that the project names, from the environment or the project's own `.env`.

    Raises ConfigError if a required one has no value.
    """
    given = {**env_file_of(folder), **env}
    found = dict[str, str]()
    for name, one in folder.spec.env.items():
        value = given.get(name) or one.default
        if not value and one.required:
            what = f"the agent needs {name}" + (f": {one.description}" if one.description else "")
            raise ConfigError(what, fix=f"export {name}=…, or write it into {folder.path / '.env'}")
        if value:
            found[name] = value
    return found


def workspace_of(folder: AgentFolder, data_dir: Path) -> Path:
    """Return the agent's own workspace, made with the project's files if it is new."""
    workspace = data_dir / "agents" / folder.slug / "workspace"
    if not workspace.exists():
        draft = workspace.with_name(f".{workspace.name}.{os.getpid()}.new")
        draft.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        give_files(folder, draft)
        os.replace(draft, workspace)
    return workspace


def give_files(folder: AgentFolder, target: Path) -> None:
    """Copy the files that the agent's workspace begins with into a new folder."""
    source = folder.path / FILES
    if source.is_dir():
        shutil.copytree(source, target, symlinks=True)
    else:
        target.mkdir(parents=True, exist_ok=True, mode=0o700)


def abilities(folder: AgentFolder) -> Iterator[str]:
    """Yield lines about what the agent may do, for the user's decision on a project from elsewhere."""
    agent, spec = agent_of(folder), folder.spec
    own = [row.name for row in tool_rows(spec) if row.path]
    listed = [name for name in agent.tools or () if name not in own]
    yield f"agent        {spec.name}: {agent.description}"
    yield f"model        {agent.model or 'that of your settings'}" + (f" at {spec.api.url}" if spec.api.url else "")
    if spec.api.key_env:
        yield f"key          the value of {spec.api.key_env} is sent to {spec.api.url}"
    yield f"tools        {'all of lmagent' if agent.tools is None else ', '.join(listed) or 'none of lmagent'}"
    if own:
        yield f"own tools    {', '.join(own)}: they run in the sandbox"
    rules = [*spec.permissions.allow, *(["mode auto: it asks nothing"] if agent.mode == "auto" else [])]
    if rules:
        yield f"unasked      {', '.join(rules)}"
    if locks := [name for name in (PYTHON_LOCK, NPM_LOCK) if (folder.path / name).is_file()]:
        yield f"packages     those of {', '.join(locks)}: installed from your registries, in the sandbox"
    for each in agents_of(folder):
        names = "the same tools" if each.tools is None else ", ".join(each.tools) or "no tools"
        yield f"sub-agent    {each.name}: {names}"
    if spec.skills:
        yield f"skills       {', '.join(spec.skills)}"
    for name, server in spec.mcp_servers.items():
        reach = f"may reach {', '.join(server.network)}" if server.network else "without network"
        program = f"runs {' '.join((server.command, *server.args))} in the sandbox, {reach}"
        gets = f"; it gets {', '.join(server.env)}" if server.env else ""
        yield f"MCP server   {name}: {f'it is at {server.url}' if server.url else program}{gets}"
    if options := gpu_options(spec.gpu):
        yield f"gpu          {_listed(options)}, if lmagent's model server loads the model"
    if spec.network.hosts:
        yield f"network      {', '.join(spec.network.hosts)}"
    if spec.env:
        yield f"variables    {', '.join(spec.env)}: its own tools get their values"
