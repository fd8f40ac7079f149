"""Named agents: what `--agent NAME`, the facade's `agent/NAME` and `delegate` mean by a name.

Features name them through `Registry.agents`. A session keeps its agent's name in its first event, so that a resumed
session works with the same tools and rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from lmagent.app.prompt import Profile, system_text
from lmagent.core.agent import DEFAULT_AGENT, AgentConfig, NamedAgent
from lmagent.core.errors import ConfigError
from lmagent.core.model import SessionOptions
from lmagent.engine.toolbox import USE_TOOL, Toolbox
from lmagent.policy.gate import Rules

if TYPE_CHECKING:
    from lmagent.config.layers import Origin
    from lmagent.core.model import ToolSpec

Source = Callable[[], Iterable[NamedAgent]]

MEMORY = ("memory", "memory_search")

SERVERS = frozenset({"describe", "mcp_resource"})
"""The tools that explain those of MCP servers."""

NOTES: dict[str, tuple[str, ...]] = {
    "environment": ("shell", "python"),
    "memory": MEMORY,
    "skills": ("skill",),
    "workspace": (),
}
"""The notes that an agent with a choice of tools gets only if it has one of these; the workspace's are not for it."""


class NamedAgents:
    """The agents that have a name, of all sources; they are read at each look, since the user edits their files.

    Attributes:
        checked: returns an agent with its permission rules in their plain form, or raises ConfigError.
    """

    def __init__(self) -> None:
        self.sources: list[Source] = []
        self.checked: Callable[[NamedAgent], NamedAgent] = lambda agent: agent

    def __bool__(self) -> bool:
        return bool(self.sources)

    def __iter__(self) -> Iterator[NamedAgent]:
        """Return the agents; of two with one name, the first."""
        found = dict[str, NamedAgent]()
        for source in self.sources:
            for agent in source():
                found.setdefault(agent.name, agent)
        return iter(found.values())

    def get(self, name: str) -> NamedAgent | None:
        """Return an agent; None for the default one.

        Raise ConfigError if no agent has this name, or its permission rules cannot be followed.
        """
        if name in ("", DEFAULT_AGENT):
            return None
        known = {agent.name: agent for agent in self}
        if name in known:
            return self.checked(known[name])
        import difflib  # only a wrong name needs it

        near = difflib.get_close_matches(name, known, n=1)
        names = ", ".join(sorted(known)) or "none"
        trust = "those of a folder count once you trust it: lmagent config trust"
        fix = f"did you mean {near[0]}?" if near else f"the agents here are: {names}; {trust}"
        raise ConfigError(f"there is no agent named {name!r} here", fix=fix)


class SessionParts(Struct, frozen=True):
    """The parts of a session that depend on its agent."""

    agent: AgentConfig
    toolbox: Toolbox
    rules: Rules
    named: NamedAgent | None = None

    @property
    def has_all_tools(self) -> bool:
        return self.named is None or self.named.tools is None

    def system(self, profile: Profile) -> str:
        """Return the system text of a new session."""
        named = self.named
        if named is None or not named.system:
            return self.agent.system or system_text(profile)
        if self.has_all_tools:
            return f"{named.system}\n\n{system_text(profile)}"
        if not any(self.toolbox):
            return named.system
        how = Path(__file__).with_name("system-agent.md").read_text(encoding="utf-8").strip()
        return f"{named.system}\n\n{how}"

    def specs(self, profile: Profile) -> tuple[ToolSpec, ...]:
        """Return the tool block of a new session."""
        if self.has_all_tools:
            return self.toolbox.specs(profile.block)
        through = (USE_TOOL,) if self.toolbox.outside is not None else ()  # the tools of servers come late
        return (*(tool.spec for tool in self.toolbox), *through)

    def has_note(self, name: str) -> bool:
        """Return whether its sessions get a note of this name."""
        return self.has_all_tools or name not in NOTES or any(map(self.toolbox.get, NOTES[name]))


TYPED = {"max_iterations": "steps", "max_turn_tokens": "turn_tokens", "max_turn_seconds": "turn_seconds"}
"""The settings that take the place of an agent's limits if the user types them, or a program gives them."""


def without_typed(named: NamedAgent, origins: Mapping[str, Origin]) -> NamedAgent:
    """Return the agent without the limits and the sampling that were given as flags: those win over its file's."""
    typed = {name for name, origin in origins.items() if origin.layer == "flag"}
    if not typed:
        return named
    limits = {field: None for setting, field in TYPED.items() if setting in typed}
    sampling = {name: None for name in SessionOptions.__struct_fields__ if f"llm_{name}" in typed}
    return replace(named, options=replace(named.options, **sampling), **limits)


def parts_for(named: NamedAgent, agent: AgentConfig, toolbox: Toolbox, rules: Rules) -> SessionParts:
    """Return the parts of a named agent's session; the others are those of the default agent."""
    own = _toolbox(named, toolbox)
    return SessionParts(_agent(named, agent, speaks_only=not any(own)), own, _rules_with(named, rules), named)


def _agent(named: NamedAgent, agent: AgentConfig, *, speaks_only: bool) -> AgentConfig:
    limits, window = agent.limits, agent.window
    limits = replace(
        limits,
        steps=named.steps or limits.steps,
        turn_tokens=named.turn_tokens or limits.turn_tokens,
        turn_seconds=named.turn_seconds or limits.turn_seconds,
        nudges=0 if speaks_only else limits.nudges,  # an announcement is an answer: there is nothing to call
    )
    return replace(
        agent,
        name=named.name,
        model=named.model or agent.model,
        limits=limits,
        window=replace(window, keep_turns=named.keep_turns),
        options=named.options,
        template=named.template,
        converses=named.converses,
    )


def _toolbox(named: NamedAgent, toolbox: Toolbox) -> Toolbox:
    """Return the agent's tools. All that it names are in its tool block: they are few, and it was made for them."""
    if named.tools is None:
        return Toolbox((*toolbox, *named.own), toolbox.outside)
    wanted = {tool.name for tool in map(toolbox.get, named.tools) if tool is not None}
    if wanted or named.own:
        wanted |= {"read_artifact"} if named.keep_turns == 0 else {"read_artifact", "recall"}
    wanted |= set(MEMORY) if named.memory else set()
    wanted |= SERVERS if named.servers else set()
    chosen = [replace(tool, deferred=False) for tool in toolbox if tool.name in wanted]
    return Toolbox((*chosen, *named.own), toolbox.outside if named.servers else None)


def _rules_with(named: NamedAgent, rules: Rules) -> Rules:
    return replace(
        rules,
        allow=(*rules.allow, *named.allow),
        ask=(*rules.ask, *named.ask),
        deny=(*rules.deny, *named.deny),
    )
