"""Host: the sessions of one workspace, wired to a model server. Surfaces call it, and no layer below it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import aclosing, suppress
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct, field
from msgspec.json import encode
from msgspec.structs import replace

from lmagent import __version__
from lmagent.app.kept import GivenModes, KeptChanges, KeptTraits
from lmagent.app.named import SessionParts, parts_for, without_typed
from lmagent.app.prompt import Environment, approvals_note, profile_for
from lmagent.app.registry import Registry
from lmagent.cluster import without_blocking
from lmagent.config.settings import Settings
from lmagent.core.agent import DEFAULT_AGENT, AgentConfig, NamedAgent
from lmagent.core.changes import Snapshots
from lmagent.core.commands import SetMode, SetModel
from lmagent.core.errors import ConfigError, LmagentError, ProviderError, SessionBusy, SessionNotFound
from lmagent.core.events import PermissionMode, SessionCreated
from lmagent.core.ids import new_session_id
from lmagent.core.messages import ToolCall, user
from lmagent.core.model import ModelRequest
from lmagent.core.ports import Clock, Dispatcher, DispatchJob
from lmagent.core.sandbox import Sandbox
from lmagent.core.tool import ToolContext
from lmagent.engine.session import Session, Wiring, is_attended
from lmagent.engine.state import SessionState
from lmagent.engine.toolbox import Toolbox
from lmagent.engine.undo import kept_contents
from lmagent.policy.gate import Rules
from lmagent.providers.served import Served, SessionProvider
from lmagent.providers.transport import Transport
from lmagent.providers.urls import is_near

if TYPE_CHECKING:
    from lmagent.app.wiring import Configuration
    from lmagent.providers.cassette import ReplayTransport
    from lmagent.store.port import SessionStore


WARMED = ("lmagent", "lmstudio", "ollama", "llamacpp", "vllm")  # servers that are known to cache prompts


class ReleasedSession(Struct, frozen=True):
    """The state of a released session that holds when this process opens it again."""

    lane: int
    mode: PermissionMode
    grants: tuple[str, ...]


class Host(Struct):
    """The services of a surface; `wiring.open_host` builds it.

    Attributes:
        transport: for questions to the server other than model calls.
        sessions: sessions that this host has open for writing, by id.
        initial_commands: commands for each resumed session: mode and model of the command line.
        attended: a user can answer approvals.
        unattended: ids of sessions without approvals, even on an attended surface.
        left: states of released sessions, for opening them again.
        opened: called with each session that is opened.
        released: called with each session id that is no longer open.
        replay: the cassette that plays the model's side; the server gets no request then.
        named: the agent of new sessions; None for the one that the settings describe.
        only: the host is for the agent of a project, and no session begins with another one.
    """

    workspace: Path
    store: SessionStore
    served: Served
    settings: Settings
    config: Configuration
    agent: AgentConfig
    clock: Clock
    rules: Rules
    transport: Transport
    registry: Registry
    toolbox: Toolbox
    sessions: dict[str, Session]
    machine: Environment
    snapshots: Snapshots | None = None
    initial_commands: tuple[SetMode | SetModel, ...] = ()
    attended: bool = False
    unattended: set[str] = field(default_factory=set[str])
    left: dict[str, ReleasedSession] = field(default_factory=dict[str, ReleasedSession])
    opened: Callable[[Session], None] = lambda session: None
    released: Callable[[str], None] = lambda session: None
    replay: ReplayTransport | None = None
    named: NamedAgent | None = None
    only: bool = False

    # --- the server -------------------------------------------------------------------------------------------

    async def models(self, provider: str = "") -> tuple[str, ...]:
        """Return the models that the server, or another provider's, lists. Raise ProviderError if it does not
        answer."""
        from lmagent.providers.discovery import models

        if self.replay is not None:
            return ()
        prefix = f"{provider}:" if provider else ""
        endpoint, _ = self.served.at(prefix)
        listed = await models(endpoint.url, endpoint.key, transport=self.transport)
        return tuple(f"{prefix}{name}" for name in listed)

    async def settle(self) -> None:
        """Learn the server's facts, and shape the prompt of new sessions by them. The user's settings win."""
        for settle in self.registry.settlers:
            await settle()
        await self.offer_vision()
        served = None if self.settings.context_window else await self.served.window(self.agent.model)
        window = self.settings.window(served)
        profile = profile_for(window)
        if profile.block is not None:  # a small window, too, gets the tools for which a program was made
            profile = replace(profile, block=(*profile.block, *self.registry.given))
        self.registry.profile = profile
        self.agent = replace(self.agent, window=window)

    async def offer_vision(self) -> None:
        """Add the tool once the model is known to see. It comes late, so it is in no tool block."""
        is_missing = all(tool.name != "vision" for tool in self.toolbox)
        if is_missing and await self.takes_images(self.agent.model):
            from lmagent.tools.vision import vision_tool  # few models can see

            tool = vision_tool(self.served.for_session(1, aside=True).stream, self.model_of)
            if self.toolbox.get("web_screenshot") is not None:  # the catalogue has no line of its own for it
                tool = replace(tool, description=f"{tool.description} web_screenshot(url) takes one of a web page.")
            self.toolbox.add(tool)

    async def takes_images(self, name: str) -> bool:
        """Return whether a model can see: by the settings, the server, or the learned traits."""
        if self.settings.vision_enabled != "auto":
            return self.settings.vision_enabled == "true"
        model = (await self.served.facts(name)).model
        if model is not None and model.vision is not None:
            return model.vision
        return bool(self.traits().sees(name or (model.id if model is not None else "")))

    def model_of(self, session: str) -> str:
        return (self.sessions[session].state.model if session in self.sessions else "") or self.agent.model

    def choosable(self) -> tuple[NamedAgent, ...]:
        """Return the agents that a new session can have."""
        if self.only and self.named is not None:
            return (self.named,)
        return (NamedAgent(DEFAULT_AGENT, description="all tools, with your settings"), *self.registry.agents)

    def agent_named(self, name: str) -> NamedAgent | None:
        """Return the agent of a new session; without a name the host's. Raise ConfigError if it cannot be chosen."""
        if not name or (self.named is not None and name == self.named.name):
            return self.named
        if self.only and self.named is not None:
            raise ConfigError(f"there is no agent named {name!r} here", fix=f"the only agent here is {self.named.name}")
        return self.registry.agents.get(name)

    def parts(self, named: NamedAgent | None) -> SessionParts:
        """Return what depends on a session's agent; None for the default one."""
        if named is None:
            return SessionParts(self.agent, self.toolbox, self.rules)
        named = without_typed(named, self.config.start.origins)
        if any(isinstance(command, SetModel) for command in self.initial_commands):  # of the command line, which wins
            named = replace(named, model="")
        if named.tools is not None:  # a program gives its tools to the agents of its sessions
            named = replace(named, tools=(*named.tools, *self.registry.given))
        return parts_for(named, self.agent, self.toolbox, self.rules)

    def mode_of(self, named: NamedAgent | None) -> PermissionMode:
        """Return the permission mode of an agent's new sessions; what the command line says wins."""
        typed = any(isinstance(command, SetMode) for command in self.initial_commands)
        return (not typed and named is not None and named.mode) or self.settings.permission_mode

    def traits(self) -> KeptTraits:
        return KeptTraits(self.settings.agent_data_dir, self.settings.endpoint)

    def use_model(self, model: str) -> None:
        self.agent = replace(self.agent, model=model)

    async def sandbox(self) -> Sandbox:
        return await self.registry.confined.get()

    def dispatcher(
        self, given_up: Callable[[DispatchJob, LmagentError], None], say: Callable[[str], None]
    ) -> Dispatcher:
        """See `lmagent.schedule.port.JobHost`: the cluster's queue, or one of this process."""
        lanes = self.settings.scheduler_lanes
        if self.settings.cluster_url:
            from lmagent.cluster.queue import ClusterDispatcher  # only with PostgreSQL
            from lmagent.cluster.store import ClusterStore

            store = cast("ClusterStore", self.store)
            return ClusterDispatcher(store, self.clock, lanes=lanes, given_up=given_up, say=say)
        from lmagent.dispatch.embedded import EmbeddedDispatcher  # a single task needs none

        return EmbeddedDispatcher(self.clock, lanes=lanes, given_up=given_up)

    async def run_for_person(self, session: str, command: str, emit: Callable[[str], None]) -> str:
        """Run a command that the user typed like the session's own; `emit` shows pieces of the output meanwhile."""
        invocation = self.toolbox.resolve(ToolCall("person", "shell", encode({"command": command}).decode()))

        async def ask_packages(_host: str, _port: int) -> bool:
            """Allow what the user has allowed the session's commands."""
            return self.registry.confined.packages.allows(session)

        context = ToolContext(session, "person", self.workspace, {}, emit, ask_packages=ask_packages)
        output = await invocation.tool.run(invocation.arguments, context)
        if output.file is not None:
            output.file.unlink()
        return output.content

    # --- sessions ---------------------------------------------------------------------------------------------

    async def prewarm(self) -> None:
        """Let a nearby server read the beginning of every new session, so that the first answer comes at once.

        Failures are ignored: the first real request reports them.
        """
        if not (self.settings.prewarm and is_near(self.settings.endpoint)) or self.replay is not None:
            return
        with suppress(ProviderError):
            await self.settle()
            facts = await self.served.facts(self.agent.model)
            unsure = facts.model is None or facts.model.loaded is False
            if facts.dialect not in WARMED or (unsure and not self.agent.model):
                return  # no model is configured: trying one might make the server unload another
            async with aclosing(cast("Any", self.served.for_session(0).stream(self._beginning()))) as events:
                async for _ in events:
                    pass

    def _beginning(self) -> ModelRequest:
        parts = self.parts(self.named)
        tools = parts.specs(self.registry.profile)
        hidden = {tool.name for tool in tools} | self.registry.hidden(SessionState())
        catalogue = _tools_note(parts.toolbox, hidden)
        frozen = (source for name, source in self.registry.frozen_notes.items() if parts.has_note(name))
        sources = (source() for source in (*self.registry.notes, *frozen))
        machine = (self.machine.note, approvals_note(attended=self.attended)) if parts.has_note("environment") else ()
        tail = (source() for source in self._tail_notes(parts))
        notes = [text for text in (*machine, *sources, catalogue, *tail) if text]
        first = (user("\n\n".join((*notes, ""))),)
        return ModelRequest(parts.agent.model, parts.system(self.registry.profile), tools, first, max_tokens=1)

    async def new_session(self, id: str = "", agent: str = "") -> Session:
        """Return a new session of an agent; without an `id` it is named after the time.

        Raise ConfigError if no agent has this name.
        """
        named = self.agent_named(agent)
        await self.settle()
        id = id or new_session_id(self.clock.now())
        log = await without_blocking(self.settings, lambda: self.store.create(id))
        parts = self.parts(named)
        return self._keep(await Session.create(log, self.wiring(log.session, parts), self.opening(log.session, parts)))

    def opening(self, session: str, parts: SessionParts | None = None) -> SessionCreated:
        parts = parts or self.parts(self.named)
        agent = parts.agent
        return SessionCreated(
            session=session,
            workspace=str(self.workspace),
            agent=agent.name,
            system=parts.system(self.registry.profile),
            tools=parts.specs(self.registry.profile),
            model=agent.model,
            mode=self.mode_of(parts.named),
            app_version=__version__,
            options=agent.options,
            forgets=agent.window.keep_turns == 0,
        )

    def _parts_of(self, session: str) -> SessionParts:
        """Return the parts of a session that has a log. Raise ConfigError if its agent is not here any more."""
        first = next(iter(self.store.read(session)), None)
        return self.parts(self.registry.agents.get(first.agent) if isinstance(first, SessionCreated) else None)

    async def open_session(self, name: str) -> Session:
        """Open a session by id or unique prefix."""
        session_id = await without_blocking(self.settings, lambda: self.store.resolve(name))
        if session_id in self.sessions:
            if session_id in self.unattended:
                raise SessionBusy(f"a job runs in session {session_id}", fix="it is free when its turn has ended")
            return self.sessions[session_id]
        await self.settle()
        parts = await without_blocking(self.settings, lambda: self._parts_of(session_id))
        log = await without_blocking(self.settings, lambda: self.store.open(session_id))
        left, opening = self.left.pop(session_id, None), self.opening(session_id, parts)
        opening = replace(opening, mode=left.mode if left is not None else self._modes.of(session_id, opening.mode))
        try:
            session = self._keep(await Session.resume(log, self.wiring(session_id, parts, left and left.lane), opening))
        except BaseException:
            log.close()
            raise
        session.state.grants += left.grants if left is not None else ()
        try:
            for command in self.initial_commands if left is None else ():
                current = session.state.mode if isinstance(command, SetMode) else session.state.model
                if current != (command.mode if isinstance(command, SetMode) else command.model):
                    await session.send(command)
            for begin in self.registry.openers:
                await begin(session)
        except BaseException:
            await self.release(session_id)  # no caller knows that it is open, so no caller would close it
            raise
        return session

    async def fork_session(self, name: str, through_seq: int | None = None) -> Session:
        """Return a new session that begins as a copy of another, up to and including `through_seq`."""
        source = await without_blocking(self.settings, lambda: self.store.resolve(name))
        fork = new_session_id(self.clock.now())
        await self.store.fork(source, fork, through_seq)
        self._modes.inherit(source, fork)
        return await self.open_session(fork)

    async def release(self, session: str) -> None:
        self.unattended.discard(session)
        if (known := self.sessions.get(session)) is not None:
            await self.registry.end_session(session)
            if isinstance(lane := known.wiring.provider, SessionProvider):
                lane.conversation.in_turn = lambda: False  # if it is opened again, the session has another conversation
                self.left[session] = ReleasedSession(
                    lane.conversation.number, known.state.mode, tuple(known.state.grants)
                )
            await without_blocking(self.settings, known.close)
            self.sessions.pop(session, None)
            self.released(session)

    def latest(self) -> str | None:
        """Return the id of the session that was written last; for a sub-agent's, of the session that it works for."""
        latest, known = self.store.latest(), set(self.store.sessions())
        while latest is not None:
            known.discard(latest)
            first = next(iter(self.store.read(latest)), None)
            parent = first.parent if isinstance(first, SessionCreated) and first.session == latest else None
            if parent is None or parent.session not in known:
                break
            latest = parent.session
        return latest

    def require_latest(self) -> str:
        if session := self.latest():
            return session
        raise SessionNotFound("there is no session here to continue", fix="lmagent starts one")

    def _keep(self, session: Session) -> Session:
        self.sessions[session.state.session] = session
        self.opened(session)
        for watch in self.registry.watchers:
            watch(session)
        given = any(isinstance(command, SetMode) for command in self.initial_commands)
        self._modes.watch(session, given=given)
        if self.settings.log_level != "error" or self.settings.debug:
            from lmagent.app.logs import log_session

            log_session(session)
        if self.settings.notify_command:
            from lmagent.app.notifying import Notifier  # few users have one

            named = lambda: (session.state.session, session.state.title)  # noqa: E731
            session.listen(Notifier(self.settings.notify_command, self.settings.notify_after, named, self.workspace))
        return session

    @property
    def _modes(self) -> GivenModes:
        return GivenModes(self.settings.agent_data_dir, self.workspace)

    def free_lane(self, fits: Callable[[int], bool] = lambda _: True, *, first: int | None = None) -> int:
        """Return the lowest free number of a lane that fits; `first` if that is free. 0 is the main one's."""
        lanes = [session.wiring.provider for session in self.sessions.values()]
        used = {lane.conversation.number for lane in lanes if isinstance(lane, SessionProvider)}
        wanted = count() if first is None else chain((first,), count())
        return next(number for number in wanted if number not in used and fits(number))

    def wiring(self, session: str, parts: SessionParts | None = None, lane: int | None = None) -> Wiring:
        """Return a session's services, those of new sessions without `parts`; on the lane, if that is free."""
        parts = parts or self.parts(self.named)
        machine = (lambda: self.machine.note, partial(self._approvals, session))
        secrets = self.registry.secrets
        secrets += [value for value in self.settings.secrets if value not in secrets]
        return Wiring(
            provider=self.served.for_session(self.free_lane(first=lane), partial(self._in_turn, session)),
            toolbox=parts.toolbox,
            clock=self.clock,
            agent=parts.agent,
            workspace=self.workspace,
            rules=parts.rules,
            attended=self.attended and session not in self.unattended,
            notes=(
                *(machine if parts.has_note("environment") else ()),
                *self.registry.notes_of(session, parts.has_note),
                partial(self._catalogue, session),
                *self._tail_notes(parts),
            ),
            secrets=secrets,
            snapshots=self.snapshots,
            traits=self.traits(),
            reviews=self.registry.reviews,
            fences=self.registry.fences,
            orders=self.registry.orders,
            abandon=self.registry.abandon,
            hooks=self.registry.hooks,
            served_window=None if self.settings.context_window else self.served.window,
        )

    def _tail_notes(self, parts: SessionParts) -> Sequence[Callable[[], str]]:
        """Return the notes about servers, for an agent that may use them."""
        return self.registry.tail_notes if parts.toolbox.outside is not None else ()

    def _in_turn(self, session: str) -> bool:
        """Return whether the session's turn sends more requests soon: an approval may take hours."""
        state = self.sessions[session].state if session in self.sessions else None
        return state is not None and state.turn_open and not state.approvals

    def _approvals(self, session: str) -> str:
        return approvals_note(attended=is_attended(self.sessions[session]))

    def _catalogue(self, session: str) -> str:
        """Return the tools for use_tool as a note for the tail: it may grow without changing the tool block."""
        open_session = self.sessions[session]
        state, toolbox = open_session.state, open_session.wiring.toolbox
        return _tools_note(toolbox, {spec.name for spec in state.tools} | self.registry.hidden(state))

    async def aclose(self) -> None:
        if isinstance(self.snapshots, KeptChanges):
            await self.snapshots.aclose({one for session in self.sessions.values() for one in kept_contents(session)})
        for session in self.sessions.values():
            session.close()
        self.sessions.clear()
        await self.registry.aclose()
        await self.served.aclose()
        await self.transport.aclose()


def _tools_note(toolbox: Toolbox, advertised: set[str]) -> str:
    text = toolbox.catalogue(advertised)
    return f"<tools>\n{text}\n</tools>" if text else ""
