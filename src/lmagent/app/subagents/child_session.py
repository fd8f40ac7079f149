"""Opens a sub-agent's session, new or resumed, in the host of its parent."""

from __future__ import annotations

from msgspec.structs import replace

from lmagent import __version__
from lmagent.agents.brief import steps_for
from lmagent.agents.childhost import PromptPlace
from lmagent.agents.feature import AgentBounds
from lmagent.app.host import Host
from lmagent.app.named import SessionParts, parts_for
from lmagent.app.prompt import Profile
from lmagent.core.agent import AgentConfig
from lmagent.core.errors import SessionBusy, SessionNotFound
from lmagent.core.events import ContextInherited, SessionCreated, SessionRenamed, SubagentStarted
from lmagent.core.messages import Message, ToolResult
from lmagent.core.tool import Tool
from lmagent.core.work import Parent
from lmagent.engine.budget import limits
from lmagent.engine.review import Fence
from lmagent.engine.session import Session, share
from lmagent.engine.state import SessionState
from lmagent.providers.cache_slot import slot_number
from lmagent.providers.served import SessionProvider

TITLE = 100  # characters of an objective that become the session's title

BEGINS = "A sub-agent does this; its brief follows."
LATER = "Not run yet."  # result of calls that have none when a sub-agent begins


async def open_child(
    host: Host, parent: Session, started: SubagentStarted, bounds: AgentBounds, home: PromptPlace
) -> Session:
    """Return a sub-agent's session with its place in the server's cache; a session with a log resumes from it."""
    if started.child in host.sessions:
        raise SessionBusy(f"the sub-agent {started.child} is open in this program", fix="close it, then continue")
    parts = _parts(host, parent, started)
    wiring = host.wiring(started.child, parts)
    wiring.agent = _agent(parent, parts, started.brief.depth, bounds)
    wiring.fences = (*wiring.fences, _above(parent))
    wiring.attended = parent.wiring.attended  # a call that the parent may not ask about, its sub-agent may not either
    opening = _opening(parent, started, parts, host.registry.profile)
    inherits = home.inherits and parts.named is None
    try:
        log, is_new = host.store.open(started.child), False
    except SessionNotFound:
        log, is_new = host.store.create(started.child), True
    try:
        session = await (Session.create if is_new else Session.resume)(log, wiring, opening)
        host.sessions[started.child] = session
        host.opened(session)
        if not session.state.title:
            title = " ".join(started.brief.objective.split())[:TITLE]
            session.opening.append(await session.record(SessionRenamed(title=title)))
        session.window, session.stated_window = parent.window, parent.stated_window
        if inherits and not session.state.messages and not session.state.work.origins:
            session.opening.append(await session.record(_inherited(parent, started.call_id)))
        session.wiring.provider = await _lane(host, parent, session)
        for grant in parent.state.grants:
            await share(session, grant, "parent")
    except BaseException:
        host.sessions.pop(started.child, None)
        log.close()
        host.released(started.child)
        raise
    return session


def _parts(host: Host, parent: Session, started: SubagentStarted) -> SessionParts:
    """Return the parts of the agent that the brief names, or the parent's. Raise ConfigError if it is not here."""
    brief, state, own = started.brief, parent.state, parent.wiring
    named = host.registry.agents.get(brief.agent or state.agent)
    if named is None or (not brief.agent and named.tools is None):
        return SessionParts(parent.agent, own.toolbox, own.rules)
    if not brief.agent:
        named = replace(named, model=state.model, options=state.work.options)
    parts = parts_for(named, host.agent, host.toolbox, own.rules)
    if named.tools is not None and (report := host.toolbox.get("report_result")) is not None:
        parts.toolbox.add(replace(report, deferred=False))
    return parts


def _opening(parent: Session, started: SubagentStarted, parts: SessionParts, profile: Profile) -> SessionCreated:
    """Return the parent's system text and tool block, byte for byte, or those of the agent that the brief names; with
    a mode that asks no less."""
    state, named = parent.state, parts.named
    return SessionCreated(
        session=started.child,
        workspace=state.workspace,
        agent=named.name if named else state.agent,
        system=parts.system(profile) if named else state.system,
        tools=parts.specs(profile) if named else state.tools,
        model=(named.model if named else "") or state.model,
        mode="manual" if named and named.mode == "manual" else state.mode,
        app_version=__version__,
        parent=Parent(state.session, started.call_id, started.task, started.brief.depth),
    )


def _agent(parent: Session, parts: SessionParts, depth: int, bounds: AgentBounds) -> AgentConfig:
    """Return the agent with limits tighter than the parent's; tokens and time are shared, and a review watches them."""
    own, agent = limits(parent), parts.agent
    options = parent.state.work.options if parts.named is None else parts.named.options
    tighter = replace(
        own,
        steps=min(own.steps, agent.limits.steps, steps_for(bounds, depth)),
        turn_tokens=None,
        turn_seconds=None,
        session_tokens=None,
        errors=min(own.errors, 3),
        no_progress=min(own.no_progress, max(5, 9 - depth)),
    )
    return replace(agent.with_options(options), limits=tighter)


def _above(parent: Session) -> Fence:
    """Return a fence: the sub-agent may not use tools that its parent may not use now; only it may report."""

    def judge(_: SessionState, tool: Tool) -> str:
        reasons = (fence(parent.state, tool) for fence in parent.wiring.fences)
        return "" if tool.name == "report_result" else next(filter(None, reasons), "")

    return judge


def _inherited(parent: Session, call: str) -> ContextInherited:
    """Return the parent's conversation as sent, with a result for each call of its last reply."""
    state = parent.state
    results = [result or ToolResult(id, "ok", BEGINS if id == call else LATER) for id, result in state.calls.items()]
    messages = (*state.messages, *(Message("tool", (result,)) for result in results))
    return ContextInherited(messages=messages, notes=dict(state.notes), nonce=state.nonce)


async def _lane(host: Host, parent: Session, session: Session) -> SessionProvider:
    """Return the sub-agent's provider: on the parent's slot if it begins with the parent's conversation."""
    own = parent.wiring.provider
    assert isinstance(own, SessionProvider)
    events = host.store.read(session.state.session)
    if any(isinstance(event, ContextInherited) for event in events):
        return host.served.beside(own)
    number, kept, aside = own.conversation.number, await host.served.keeps(session.state.model), False
    lane = host.free_lane()
    if kept is not None:  # its siblings use the same slot next, and need not read the fixed part again
        beside = slot_number(number + 1, kept)
        lane = host.free_lane(lambda free: free > 0 and slot_number(free, kept) == beside)
        aside = beside == slot_number(number, kept)  # the parent waits for it, so it must not wait for the parent
    return host.served.for_session(lane, lambda: session.state.turn_open, aside=aside)
