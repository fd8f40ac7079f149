"""Registry: the contributions of features. Built-ins and plugins use the same calls, so neither is privileged."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field

from lmagent.app.confined import Confined
from lmagent.app.named import NamedAgents
from lmagent.app.prompt import PROFILES, Profile
from lmagent.config.settings import Settings
from lmagent.core.errors import ConfigError, StoreError, ToolError
from lmagent.core.events import DurableEvent
from lmagent.core.ports import Clock
from lmagent.core.tool import Tool
from lmagent.engine.review import Fence, Review
from lmagent.engine.session import Order, Session
from lmagent.engine.state import SessionState
from lmagent.engine.toolbox import Outside

if TYPE_CHECKING:
    from lmagent.app.host import Host
    from lmagent.app.slash import SlashContext, SlashResult
    from lmagent.hooks.feature import HookFeature
    from lmagent.mcp.catalogue import Catalogue
    from lmagent.mcp.spec import Servers
    from lmagent.providers.dialects.base import Dialect
    from lmagent.skills.feature import Skills
    from lmagent.store.port import SessionStore

PLUGIN_GROUP = "lmagent.plugins"


class SlashCommand(Struct, frozen=True):
    """A command that every surface offers as `/name`, under the heading `group` in `/help`."""

    name: str
    usage: str
    help: str
    run: Callable[[SlashContext, str], Awaitable[SlashResult]]
    group: str = "More"
    beside: bool = False  # it may take long and changes nothing, so a surface takes further input meanwhile
    asks: bool = False  # it needs a session, and may ask in it: a surface takes the answers meanwhile


# The tools that a setting switches off.
SWITCHED: dict[str, tuple[str, ...]] = {
    "enable_shell": ("shell", "jobs"),
    "enable_files": ("read", "write", "edit", "glob", "grep", "ls", "mkdir", "vision"),
    "enable_fetch": ("web_fetch", "web_fetch_js", "web_screenshot", "web_fetch_stealth", "web_search"),
    "enable_data_view": ("data_view", "data_plot"),
    "enable_python": ("python",),
    "enable_memory": ("memory", "memory_search"),
}

# Names of tools that come after the plugins: through which others are called, of models that see, of skills.
TAKEN = frozenset({"use_tool", "vision", "skill", "promote_skill"})

# The tools that read or report a session's own record, or explain a tool; a list of allowed tools need not name them.
OWN = ("read_artifact", "recall", "report_result", "describe")


SessionHook = Callable[[Session], Awaitable[None]]


class Registry(Struct):
    """The contributions of a program's features, and the services that features may use.

    Attributes:
        sessions: the sessions that are open here for writing, by id.
        host: the owner of the sessions; None while it is wired, and for a single call.
        profile: how much of the window the fixed part of a new session's prompt may take.
        frozen_notes: by their names, notes that a session keeps as they were at its beginning.
        session_notes: like notes, for those that depend on the session; they receive its id.
        facts: lines for `/context` about what the prompt begins with.
        command_modules: modules whose `commands()` gives slash commands. They are imported at the first look-up: a
            one-shot needs none.
        closers: release the features' resources at the end of the program.
        enders: release the features' resources of a session that is over; they receive its id.
        agents: the agents that users wrote, by name.
        hooks: the user's and the workspace's hooks; None if no file has any.
        skills: those of the workspace; None without the feature.
        mcp: the MCP servers of the workspace; None if none is configured.
        catalogue: what those servers offer, under the names that it has here; None if no server is configured.
        outside: the tools of those servers.
        tail_notes: like notes, after all others: a change of theirs re-reads nothing else.
        secrets: values that no log and no prompt may hold; the list grows.
        late_names: beginnings of the names of tools that come while the program runs, for permission rules.
        late_commands: return slash commands that come and go; they take no other command's name.
        watchers: receive each session that is opened.
        busy: returns whether work runs for a session outside its turns, which releasing it would end.
        abandon: ends the sub-agents of a call that will not be continued; returns its result for the model.
        given: names of the tools of the program that opened the host; they are always offered, with their schemas.
        loads_plugins: plugins register now, which may not take the names of what comes later.
        openers: complete a feature's work that a crash cut off, in a session that is opened again.
    """

    workspace: Path
    clock: Clock
    store: SessionStore
    confined: Confined
    settings: Settings = field(default_factory=Settings)
    sessions: dict[str, Session] = field(default_factory=dict[str, Session])
    host: Host | None = None
    profile: Profile = PROFILES[-1]
    tools: dict[str, Tool] = field(default_factory=dict[str, Tool])
    notes: list[Callable[[], str]] = field(default_factory=list[Callable[[], str]])
    frozen_notes: dict[str, Callable[[], str]] = field(default_factory=dict[str, Callable[[], str]])
    session_notes: list[Callable[[str], str]] = field(default_factory=list[Callable[[str], str]])
    facts: list[Callable[[], str]] = field(default_factory=list[Callable[[], str]])
    command_modules: list[str] = field(default_factory=list[str])
    reviews: list[Review] = field(default_factory=list[Review])
    fences: list[Fence] = field(default_factory=list[Fence])
    orders: dict[type, Order] = field(default_factory=dict[type, Order])
    hides: list[Callable[[SessionState], set[str]]] = field(default_factory=list[Callable[[SessionState], set[str]]])
    openers: list[SessionHook] = field(default_factory=list["SessionHook"])
    busy: list[Callable[[str], bool]] = field(default_factory=list[Callable[[str], bool]])
    enders: list[Callable[[str], Awaitable[None]]] = field(default_factory=list[Callable[[str], Awaitable[None]]])
    closers: list[Callable[[], Awaitable[None]]] = field(default_factory=list[Callable[[], Awaitable[None]]])
    abandon: Callable[[Session, str], Awaitable[str]] | None = None
    agents: NamedAgents = field(default_factory=NamedAgents)
    hooks: HookFeature | None = None
    skills: Skills | None = None
    mcp: Servers | None = None
    catalogue: Catalogue | None = None
    outside: Outside | None = None
    tail_notes: list[Callable[[], str]] = field(default_factory=list[Callable[[], str]])
    secrets: list[str] = field(default_factory=list[str])
    late_names: list[str] = field(default_factory=list[str])
    late_commands: list[Callable[[], Iterable[SlashCommand]]] = field(
        default_factory=list[Callable[[], Iterable[SlashCommand]]]
    )
    watchers: list[Callable[[Session], None]] = field(default_factory=list[Callable[[Session], None]])
    given: list[str] = field(default_factory=list[str])
    loads_plugins: bool = False
    _commands: dict[str, SlashCommand] = field(default_factory=dict[str, SlashCommand])

    # --- the sessions' records --------------------------------------------------------------------------------------

    def session(self, session: str) -> Session:
        """Return a session that is open here for writing. Raise ToolError if the user calls a single tool."""
        if session not in self.sessions:
            raise ToolError("this tool works on a session's own record; a single call has none")
        return self.sessions[session]

    def events(self, session: str) -> Iterable[DurableEvent]:
        return self.store.read(session) if session else ()

    def get_blob(self, session: str, handle: str) -> bytes:
        if session not in self.sessions:
            raise StoreError("artifacts belong to a session; a single call has none")
        return self.sessions[session].log.get_blob(handle)

    # --- contributions ----------------------------------------------------------------------------------------------

    def tool(self, tool: Tool) -> None:
        """Add a tool. Raise ConfigError if the name is taken: nothing can be shadowed."""
        taken = tool.name in self.tools
        if self.loads_plugins:  # calls by another name of a built-in tool are meant for that
            taken = taken or tool.name in TAKEN or any(tool.name in other.aliases for other in self.tools.values())
        if taken:
            raise ConfigError(f"two tools are named {tool.name!r}", fix="rename the one that the plugin brings")
        self.tools[tool.name] = tool

    def dialect(self, dialect: Dialect, owners: tuple[str, ...] = ()) -> None:
        """Add the knowledge about a kind of model server; it claims servers that no built-in dialect claims.

        `owners`: what `owned_by` in such a server's list of models says. Raise ConfigError if the name is taken.
        """
        from lmagent.providers.dialects.probe import add  # few users have such a plugin

        add(dialect, owners)

    def offered(self) -> list[Tool]:
        """Return the tools that the settings do not switch off. An unknown name in the list allows nothing."""
        wanted = {name.lower() for name in self.settings.tools_allow}
        off = {tool for setting, tools in SWITCHED.items() if not getattr(self.settings, setting) for tool in tools}
        return [
            tool
            for tool in self.tools.values()
            if tool.name not in off
            and (not wanted or tool.name in (*OWN, *self.given) or wanted & {tool.name, *tool.aliases})
        ]

    def note(self, source: Callable[[], str]) -> None:
        """Keep the model informed of `<name>text</name>` at the tail of the conversation."""
        self.notes.append(source)

    def notes_of(self, session: str, has: Callable[[str], bool] = lambda _: True) -> tuple[Callable[[], str], ...]:
        """Return the sources of a session's notes; `has` tells whether it gets a frozen note of a name."""
        frozen = (partial(self._frozen, session, name) for name in self.frozen_notes if has(name))
        return (*self.notes, *frozen, *(partial(source, session) for source in self.session_notes))

    def _frozen(self, session: str, name: str) -> str:
        state = self.session(session).state
        begun = name in state.notes or state.steps_total > 0
        return state.notes.get(name, "") if begun else self.frozen_notes[name]()

    def freeze(self, name: str, source: Callable[[], str]) -> None:
        """Give each new session `<name>text</name>`, which stays as it is for the session's life."""
        self.frozen_notes[name] = source

    def hidden(self, state: SessionState) -> set[str]:
        """Return names of tools that a session's catalogue does not list."""
        return {name for hides in self.hides for name in hides(state)}

    def is_busy(self, session: str) -> bool:
        return any(is_busy(session) for is_busy in self.busy)

    async def end_session(self, session: str) -> None:
        for end in self.enders:
            await end(session)

    async def aclose(self) -> None:
        """Release the features' resources, the last feature first."""
        while self.closers:
            await self.closers.pop()()
        await self.confined.aclose()

    def command(self, command: SlashCommand) -> None:
        """Add a slash command. Raise ConfigError if the name is taken, also as another program's name for one."""
        from lmagent.app.slash import SYNONYMS  # a program without plugins has no use for it at its start

        if command.name in self.commands or command.name in SYNONYMS:
            raise ConfigError(f"two commands are named /{command.name}", fix="rename the one that the plugin brings")
        self._commands[command.name] = command

    @property
    def commands(self) -> dict[str, SlashCommand]:
        """Return the slash commands by name, those of the program first."""
        while self.command_modules:
            own: Iterable[SlashCommand] = import_module(self.command_modules.pop(0)).commands()
            self._commands.update((command.name, command) for command in own)
        return self._commands


def load_plugins(registry: Registry) -> None:
    """Let each installed plugin register its features; see docs/extending.md.

    A plugin is an entry point of the group `lmagent.plugins`: a function that takes the Registry. Raise ConfigError,
    which names the plugin, if it fails or takes a name that is taken.
    """
    needle = f"[{PLUGIN_GROUP}]".encode()
    folders = (Path(folder) for folder in sys.path if folder.endswith(("site-packages", "dist-packages")))
    files = (path for folder in folders for path in folder.glob("*.dist-info/entry_points.txt"))
    if not any(needle in path.read_bytes() for path in files):
        return
    from importlib.metadata import entry_points  # slow to import, and few users have a plugin

    registry.loads_plugins = True
    for point in sorted(entry_points(group=PLUGIN_GROUP), key=lambda point: point.name):
        named = f"the plugin {point.name!r} ({point.value})"
        try:
            point.load()(registry)
        except ConfigError as refused:
            raise ConfigError(f"{named} cannot be used: {refused.message}", fix=refused.fix) from refused
        except (Exception, SystemExit) as broken:  # its code is not ours: name it instead of a stack trace
            raise ConfigError(
                f"{named} failed to load: {type(broken).__name__}: {broken}", fix="update or uninstall it"
            ) from broken
    registry.loads_plugins = False
