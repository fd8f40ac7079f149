"""Session: one event log and one lane of work.

Commands come in through `send`, events go out to listeners; only the lane (`engine/lane.py`) calls the model or a tool.
Each event is recorded first and folded into `state` second, so the state is never ahead of the log.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import anyio
import msgspec
from msgspec import Struct, field

from lmagent.core import commands as cmd
from lmagent.core import events as ev
from lmagent.core.agent import AgentConfig
from lmagent.core.errors import LmagentError, StoreError
from lmagent.core.ids import InputOrigin
from lmagent.core.model import ModelRequest, keeps_thoughts
from lmagent.core.ports import Clock, ModelTraits, Provider, SessionLog, Snapshots
from lmagent.engine import undo
from lmagent.engine.redact import Redactor
from lmagent.engine.review import Fence, Review
from lmagent.engine.state import SessionState
from lmagent.engine.toolbox import Toolbox
from lmagent.policy.gate import Rules

if TYPE_CHECKING:
    from lmagent.engine.hooks import Hooks

_STRICTNESS: dict[ev.PermissionMode, int] = {"auto": 0, "normal": 1, "manual": 2}

Listener = Callable[[ev.Event], None]
NoteSource = Callable[[], str]
"""Returns a note for the tail, as `<name>text</name>`, or an empty text; it is sent when its text changes."""

SCHEDULER = "scheduler"
"""Continues the turn of a job if no user does."""

SMALLEST_REPLY = 256
"""Tokens that a reply may have even in a full window."""


class Wiring(Struct):
    """The parts that a session works with, put together by `app`.

    Attributes:
        workspace: the tools' folder. Never taken from a log: a log is data, and can come with a checkout.
        attended: whether a user can answer approvals; if not, calls that need one are denied.
        fences: features' bans on tools; asked before the gate.
        orders: the handlers of features' commands, by the command's type.
        secrets: values that no event may hold; the list may grow.
        abandon: ends the sub-agents of a call that will not be continued; returns the call's result.
        hooks: programs of the user that see calls and inputs; None if the user has none.
        served_window: the served window of a model for a prompt of so many tokens; None if it is not known.
    """

    provider: Provider
    toolbox: Toolbox
    clock: Clock
    agent: AgentConfig
    workspace: Path
    rules: Rules = field(default_factory=Rules)
    attended: bool = False
    notes: Sequence[NoteSource] = ()
    secrets: Sequence[str] = ()
    snapshots: Snapshots | None = None
    traits: ModelTraits = field(default_factory=ModelTraits)
    reviews: Sequence[Review] = ()
    fences: Sequence[Fence] = ()
    orders: Mapping[type, Order] = field(default_factory=dict[type, "Order"])
    abandon: Callable[[Session, str], Awaitable[str]] | None = None
    hooks: Hooks | None = None
    served_window: Callable[[str, int], Awaitable[int | None]] | None = None


Order = Callable[["Session", Any], Awaitable[ev.DurableEvent | None]]
"""Carries out a command; returns the event that records it, on disk."""


class Session:
    def __init__(self, log: SessionLog, wiring: Wiring) -> None:
        self.log = log
        self.wiring = wiring
        self.agent = wiring.agent
        self.state = SessionState(session=log.session)
        self.window = wiring.agent.window
        self.stated_window: int | None = None
        self.wants_compaction: str | None = None
        self.plain_summaries = False
        """Asked for a summary at the end of the conversation, the model calls tools or is silent."""
        self.futile_summaries = 0
        """Cuts in a row for which the model gave no summary."""
        self.partial: list[str] = []
        self.opening: list[ev.DurableEvent] = []
        """Events from before the first listener: the first event, notices about a damaged log."""
        self._redactor = Redactor(wiring.secrets)
        self._listeners: list[Listener] = []
        self.answers: dict[str, anyio.Event] = {}
        """Waiters for the answer about a call."""
        self.resolved: dict[str, ev.ApprovalResolved] = {}
        """Answers given in this process, by call. A log's own answers and grants do not count: see `resume`."""
        self.scope: anyio.CancelScope | None = None
        self.wants_resume = False
        self.adopted: set[InputOrigin] = set()
        """Origins whose turn a user has continued: that user answers its questions."""
        self.patience: dict[InputOrigin, float] = {}
        """Unix times until which turns wait for an unreachable model server, by origin; see `outage`."""
        self.above: Session | None = None
        """The session that a sub-agent works for, while it works."""
        self.children: dict[str, Session] = {}
        """Sub-agents that run now, by session id."""
        self.turn_began = 0.0
        """When this process began or resumed the turn, by the monotonic clock. Sub-agents share its time."""
        self.turn_tokens_before = 0
        """Tokens spent before that, with those of sub-agents."""
        self.tried: set[tuple[str, bool]] = set()
        """Effects of the tools that the turn has called in this process, and whether they worked."""
        self.warned: set[str] = set()
        self.answer_schemas: dict[int, dict[str, Any]] = {}
        """The JSON schema for a turn's answers, by turn; servers enforce it where they can."""
        self.closed = False
        self.has_failed = False
        """The log accepts no more events until the session is opened anew."""

    # --- opening ----------------------------------------------------------------------------------------------

    @classmethod
    async def create(cls, log: SessionLog, wiring: Wiring, opening: ev.SessionCreated) -> Session:
        """Return a new session; `opening` fixes its system text and tool block."""
        session = cls(log, wiring)
        session.opening.append(await session.record(opening))
        return session

    @classmethod
    async def resume(cls, log: SessionLog, wiring: Wiring, opening: ev.SessionCreated) -> Session:
        """Return an existing session with the conversation of its log. Damage in the log becomes a notice.

        Permissions do not come from the log, which can come with a checkout. Its grants and its answers to approvals
        end with the process that gave them, and its mode counts only if it is as strict as that of `opening`. `opening`
        is recorded if the log has lost its beginning.
        """
        session = cls(log, wiring)
        noted: set[str] = set()
        begun = False
        for event in log.events():
            session.state.apply(event)
            if isinstance(event, ev.Notice):
                noted.add(event.text)
            begun = begun or isinstance(event, ev.SessionCreated)
        if not begun:
            session.opening.append(await session.record(opening))
        session.state.grants.clear()
        if _STRICTNESS[session.state.mode] < _STRICTNESS[opening.mode]:
            session.opening.append(await session.record(ev.ModeChanged(mode=opening.mode, by="settings")))
        session.opening += await undo.record_interrupted(session, anew=True)
        for damage in log.damage:
            what = "cut off" if damage.torn else "skipped"
            text = f"line {damage.line} of the log was damaged and {what} ({damage.size} bytes): {damage.reason}"
            if text not in noted:
                session.opening.append(await session.notify("warning", "damaged_log", text))
        return session

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Show every event, durable or not, to `listener`; return the function that stops it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    # --- events out ---------------------------------------------------------------------------------------------

    async def record(self, event: ev.DurableEvent, *, sync: bool = False) -> ev.DurableEvent:
        """Write an event to the log, fold it in, and show it.

        Raises StoreError: it could not be written. Nothing may be done that depends on it.
        """
        if self.state.turn_open and not event.turn:
            event = msgspec.structs.replace(event, turn=self.state.turn)
        event = msgspec.structs.replace(event, apart=True) if isinstance(event, ev.MessageAdded) else event
        try:
            stored = await self.log.append(self._redactor.event(event), sync=sync)
        except StoreError:
            self.has_failed = True
            raise
        self.state.apply(stored)
        self._end_streams(stored)
        self.emit(stored)
        return stored

    async def notify(
        self, level: Literal["info", "warning"], code: str, text: str, trouble: LmagentError | str = ""
    ) -> ev.DurableEvent:
        """Record a notice for the user; `trouble`, or its `fix`, says what to do next."""
        fix, typed = (trouble, "") if isinstance(trouble, str) else (trouble.fix, trouble.terminal)
        return await self.record(ev.Notice(level=level, code=code, text=text, fix=fix, terminal=typed))

    def _end_streams(self, event: ev.DurableEvent) -> None:
        """Show the text that the redactor held back of the streams that this event ends."""
        if isinstance(event, ev.ToolFinished) and (text := self._redactor.rest(event.call_id)):
            self.emit(ev.ToolOutput(call_id=event.call_id, text=text, turn=event.turn))
        elif isinstance(event, ev.MessageAdded):
            if text := self._redactor.rest(ev.ThinkingDelta.__name__):
                self.emit(ev.ThinkingDelta(text=text, turn=event.turn))
            if text := self._redactor.rest(ev.TextDelta.__name__):
                self.emit(ev.TextDelta(text=text, turn=event.turn))

    async def keep(self, text: str) -> str:
        """Keep a long output in a blob, without secrets; return its SHA-256."""
        return await self.log.put_blob(self._redactor.text(text).encode("utf-8", "surrogatepass"))

    async def keep_file(self, path: Path) -> str:
        """Adopt a file with a long output as a blob, without secrets; return its SHA-256."""
        await anyio.to_thread.run_sync(self._redactor.file, path)
        return await self.log.adopt_blob(path)

    def emit(self, event: ev.Event) -> None:
        for listener in self._listeners:
            listener(event)

    def emit_live(self, event: ev.EphemeralEvent) -> None:
        """Show an event that is not recorded."""
        if not self._listeners:
            return
        if isinstance(event, ev.TextDelta | ev.ThinkingDelta | ev.ToolOutput):
            name = event.call_id if isinstance(event, ev.ToolOutput) else type(event).__name__
            text = self._redactor.stream(name, event.text)
            if not text:
                return
            if text != event.text:
                event = msgspec.structs.replace(event, text=text)
        self.emit(event)

    # --- commands in ------------------------------------------------------------------------------------------

    async def send(self, command: cmd.Command) -> ev.DurableEvent | None:
        """Accept a command. Return the event that records it, on disk, if there is one."""
        if isinstance(command, cmd.Steer | cmd.Interrupt) and command.to not in ("", self.state.session):
            child = self.descendant(lambda session: session.state.session == command.to)
            return await child.send(command) if child is not None else None
        match command:
            case cmd.Submit() | cmd.Steer():
                return await self._receive(command)
            case cmd.Withdraw(input=input_id):
                if input_id in self.state.inputs:
                    return await self.record(ev.InputWithdrawn(input=input_id), sync=True)
            case cmd.Approve():
                return await _answer(self, command)
            case cmd.SetMode() | cmd.SetModel() | cmd.Rename():
                return await self._set(command)
            case cmd.Undo() | cmd.Redo():
                return await undo.restore(self, command)
            case cmd.Compact(focus=focus):
                self.wants_compaction = focus
            case cmd.Continue(by=by):
                self._go_on(by)
            case cmd.Interrupt():
                self._interrupt()
            case cmd.Close():
                self._interrupt()
                self.closed = True
            case _:
                return await self.wiring.orders[type(command)](self, command)
        return None

    def descendant(self, wanted: Callable[[Session], bool]) -> Session | None:
        """Return the first sub-agent at work, at any depth, that matches."""
        for child in self.children.values():
            if wanted(child):
                return child
            if (found := child.descendant(wanted)) is not None:
                return found
        return None

    async def _set(self, command: cmd.SetMode | cmd.SetModel | cmd.Rename) -> ev.DurableEvent:
        match command:
            case cmd.SetMode():
                return await self._set_mode(command.mode, command.by)
            case cmd.SetModel(model=model, by=by):
                read = self.state.estimate_tokens() if self.state.messages else 0
                return await self.record(ev.ModelChanged(model=model, by=by, tokens=read), sync=True)
            case cmd.Rename(title=title):
                return await self.record(ev.SessionRenamed(title=title), sync=True)

    async def _set_mode(self, mode: ev.PermissionMode, by: str) -> ev.DurableEvent:
        """Set the mode here and in sub-agents at work: a sub-agent may never do more than its parent."""
        if self.above is not None and _STRICTNESS[mode] < _STRICTNESS[self.above.state.mode]:
            mode = self.above.state.mode
        stored = await self.record(ev.ModeChanged(mode=mode, by=by), sync=True)
        for child in list(self.children.values()):
            await child.send(cmd.SetMode(mode=mode, by=by))
        return stored

    async def _receive(self, command: cmd.Submit | cmd.Steer) -> ev.DurableEvent | None:
        if command.origin in self.state.work.origins:
            return None  # on record already: the submitter died before it knew
        if isinstance(command, cmd.Steer):
            delivery = "steer" if self.running else "submit"
        else:
            delivery = "queue" if self.running else "submit"
        way = command.way if isinstance(command, cmd.Submit) else None
        event = ev.InputReceived(
            message=command.message, delivery=delivery, by=command.by, origin=command.origin, way=way
        )
        return await self.record(event, sync=True)

    # --- the lane ------------------------------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        return self.scope is not None

    def request(self) -> ModelRequest:
        """Return the next model call: the fixed block, then the conversation."""
        state, agent = self.state, self.agent.with_options(self.state.work.options)
        # Some servers (vLLM) refuse a request whose prompt and cap together exceed the window; estimates err.
        room = max(SMALLEST_REPLY, self.window.tokens - int(state.estimate_tokens() * 1.1))
        model, schema = state.model or agent.model, self.answer_schemas.get(state.turn)
        keeps = keeps_thoughts(model or state.served_model) if agent.keep_thinking is None else agent.keep_thinking
        return ModelRequest(
            model=model,
            system=state.system,
            tools=state.tools,
            messages=state.messages,
            temperature=agent.temperature,
            sampling=agent.sampling,
            max_tokens=agent.max_tokens and min(agent.max_tokens, self.window.tokens // 2, room),
            tool_choice="none" if schema else "auto",
            response_schema=schema,
            keep_thinking=keeps,
            constrain=state.calling.constrained and not schema,
            others=self.wiring.toolbox.callable,
            nonce=state.nonce,
            longest=state.bytes(self.window.tokens // 2),
            joins=self.wiring.traits.joins(model or state.served_model),
        )

    def _go_on(self, by: str) -> None:
        self.wants_resume = True
        if by != SCHEDULER and not self.running:
            self.adopted.add(self.state.origin)

    def _interrupt(self) -> None:
        if self.above is not None:
            self.closed = True  # an interrupted sub-agent does not resume
        if self.scope is not None:
            self.scope.cancel()

    def close(self) -> None:
        self.closed = True
        self.log.close()


# --- approvals --------------------------------------------------------------------------------------------------------
#
# A grant for a session holds for its sub-agents too, and a grant to a sub-agent for the whole tree of sessions: to the
# user, the tree is one session.


def holder(session: Session, approval: str) -> Session | None:
    """Return the session, or its sub-agent at work, in which an approval waits."""
    if approval in session.state.approvals:
        return session
    return session.descendant(lambda child: approval in child.state.approvals)


def is_attended(session: Session) -> bool:
    """Return whether a user can answer questions of the turn: in a job only if the user has continued it."""
    if not session.wiring.attended or (session.above is not None and not is_attended(session.above)):
        return False
    return session.state.origin.is_attended or session.state.origin in session.adopted


async def _answer(session: Session, command: cmd.Approve) -> ev.DurableEvent | None:
    """Record the user's answer; return None if another client answered first."""
    owner = holder(session, command.approval)
    if owner is None:
        return None
    request = owner.state.approvals[command.approval]
    resolved = ev.ApprovalResolved(
        approval=request.id,
        call_id=request.call_id,
        approved=command.approved,
        scope=command.scope if request.grant else "once",
        by=command.by,
        grant=request.grant if command.scope == "session" and command.approved else "",
        feedback=command.feedback,
    )
    stored = await _settle(owner, resolved)
    if resolved.grant:
        await share(top(owner), resolved.grant, command.by)
    return stored


async def share(session: Session, grant: str, by: str) -> None:
    """Extend a grant to a session and its sub-agents at work, and approve the calls that wait for the same grant."""
    for other in [item for item in session.state.approvals.values() if item.grant == grant]:
        await _settle(session, _granted(grant, by, other.id, other.call_id))
    if grant not in session.state.grants:
        await session.record(_granted(grant, by), sync=True)
    for child in list(session.children.values()):
        await share(child, grant, by)


async def ask(session: Session, request: ev.ApprovalRequested) -> ev.ApprovalResolved:
    """Ask the user about a call and wait for the answer; unattended, the call is denied."""
    if answered := session.resolved.pop(request.call_id, None):
        return answered  # answered since an earlier process ended while it waited
    pending = next((item for item in session.state.approvals.values() if item.call_id == request.call_id), None)
    if pending is None:
        stored = await session.record(request)
    else:
        stored = pending
        session.emit(pending)  # the current watchers have not seen the first request
    if not is_attended(session):
        denial = ev.ApprovalResolved(approval=stored.id, call_id=request.call_id, approved=False, by="unattended")
        resolved = await session.record(denial)
        assert isinstance(resolved, ev.ApprovalResolved)
        return resolved
    waiter = session.answers[request.call_id] = anyio.Event()
    try:
        await waiter.wait()
        return session.resolved.pop(request.call_id)
    finally:
        session.answers.pop(request.call_id, None)


async def _settle(session: Session, resolved: ev.ApprovalResolved) -> ev.ApprovalResolved:
    stored = await session.record(resolved, sync=True)
    assert isinstance(stored, ev.ApprovalResolved)
    session.resolved[resolved.call_id] = stored
    if waiter := session.answers.get(resolved.call_id):
        waiter.set()
    return stored


def _granted(grant: str, by: str, approval: str = "", call_id: str = "") -> ev.ApprovalResolved:
    return ev.ApprovalResolved(approval=approval, call_id=call_id, approved=True, scope="session", by=by, grant=grant)


def top(session: Session) -> Session:
    while session.above is not None:
        session = session.above
    return session
