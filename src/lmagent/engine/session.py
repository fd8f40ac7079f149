"""Session: one event log and one lane of work.

Commands come in through `send`, events go out to listeners; the lane (`engine/lane.py`) is the only place that
calls the model or a tool. Whatever happens is recorded first and folded into `state` second, so the state is never
ahead of the log.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
import msgspec
from msgspec import Struct, field

from lmagent.core.agent import Agent
from lmagent.core.commands import (
    Approve,
    Close,
    Command,
    Compact,
    Continue,
    Interrupt,
    Redo,
    Rename,
    SetMode,
    SetModel,
    Steer,
    Submit,
    Undo,
    Withdraw,
)
from lmagent.core.errors import StoreError
from lmagent.core.events import (
    ApprovalRequested,
    ApprovalResolved,
    DurableEvent,
    EphemeralEvent,
    Event,
    InputReceived,
    InputWithdrawn,
    MessageAdded,
    ModeChanged,
    ModelChanged,
    Notice,
    PermissionMode,
    SessionCreated,
    SessionRenamed,
    TextDelta,
    ThinkingDelta,
    ToolFinished,
    ToolOutput,
)
from lmagent.core.model import ModelRequest, keeps_thoughts
from lmagent.core.ports import Clock, ModelTraits, NoTraits, Provider, SessionLog, Snapshots
from lmagent.engine import approvals, undo
from lmagent.engine.redact import Redactor
from lmagent.engine.review import Fence, Review
from lmagent.engine.state import SessionState
from lmagent.engine.toolbox import Toolbox
from lmagent.policy.gate import Rules

_STRICTNESS: dict[PermissionMode, int] = {"auto": 0, "normal": 1, "manual": 2}

Listener = Callable[[Event], None]
NoteSource = Callable[[], str]
"""Gives a note for the tail, as `<name>text</name>`; it is sent when its text changes. Empty for nothing."""

SCHEDULER = "scheduler"
"""Who goes on with the turn of a job, where no person does."""

SMALLEST_REPLY = 256
"""Tokens that a reply may have however full the window is."""


class Wiring(Struct):
    """What a session works with. Put together once, by `app`.

    Attributes:
        provider: the model server.
        toolbox: the tools.
        clock: time.
        agent: prompt, model, limits, window.
        workspace: where the tools work. Never taken from a log: that is data, and a checkout can bring it.
        rules: permission rules of the configuration.
        attended: whether a person can answer approvals; without one, asking means denying.
        notes: what to keep the model informed of at the tail.
        secrets: values that must never reach the log or the model.
        snapshots: keeps what calls change; None where that is not wanted.
        traits: what was learned of models before.
        reviews: what features have to say about how a turn goes on.
        fences: which tools may not be used now; asked before the gate.
        orders: who carries out the commands that belong to a feature, by the command's type.
        abandon: ends the sub-agents of a call that will not be gone on with; returns what the model is told.
        served_window: the window that is served for a model, given the prompt's tokens; None when it is not known.
    """

    provider: Provider
    toolbox: Toolbox
    clock: Clock
    agent: Agent
    workspace: Path
    rules: Rules = field(default_factory=Rules)
    attended: bool = False
    notes: Sequence[NoteSource] = ()
    secrets: Sequence[str] = ()
    snapshots: Snapshots | None = None
    traits: ModelTraits = field(default_factory=NoTraits)
    reviews: Sequence[Review] = ()
    fences: Sequence[Fence] = ()
    orders: Mapping[type, Order] = field(default_factory=dict[type, "Order"])
    abandon: Callable[[Session, str], Awaitable[str]] | None = None
    served_window: Callable[[str, int], Awaitable[int | None]] | None = None


Order = Callable[["Session", Any], Awaitable[DurableEvent | None]]
"""Carries out a command; returns the event that records it, on disk."""


class Session:
    """One session, open for writing."""

    def __init__(self, log: SessionLog, wiring: Wiring) -> None:
        self.log = log
        self.wiring = wiring
        self.agent = wiring.agent
        self.state = SessionState(session=log.session)
        self.window = wiring.agent.window
        self.stated_window: int | None = None
        self.wants_compaction: str | None = None
        self.plain_summaries = False
        """Asked for a summary behind the conversation, the model calls tools or says nothing."""
        self.futile_summaries = 0
        """Cuts in a row for which no summary could be had."""
        self.partial: list[str] = []
        self.opening: list[DurableEvent] = []
        """What was recorded before anybody could listen: the first event, notices about a damaged log."""
        self._redactor = Redactor(wiring.secrets)
        self._listeners: list[Listener] = []
        self.answers: dict[str, anyio.Event] = {}
        """Who waits for the answer about a call."""
        self.resolved: dict[str, ApprovalResolved] = {}
        """Answers given in this process, by call. A log's own answers and grants do not count: see `resume`."""
        self.scope: anyio.CancelScope | None = None
        self.wants_resume = False
        self.adopted: set[str] = set()
        """Jobs whose turn a person has gone on with: what it asks is theirs to answer then."""
        self.patience: dict[str, float] = {}
        """Until when turns wait for a model server that cannot be reached, by their job; see `outage`."""
        self.above: Session | None = None
        """Whose call this session works for as a sub-agent, while it does."""
        self.children: dict[str, Session] = {}
        """Sub-agents that run now, by the id of their session."""
        self.turn_began = 0.0
        """When this process began the turn or took it up, by the monotonic clock. Sub-agents share its time."""
        self.turn_tokens_before = 0
        """Tokens that were spent by then, those of sub-agents included."""
        self.warned: set[str] = set()
        self.answer_schemas: dict[int, dict[str, Any]] = {}
        """The JSON schema that answers of a turn must follow where the server can enforce it, by the turn."""
        self.closed = False
        self.has_failed = False
        """Its log takes nothing more until it is opened anew."""

    # --- opening ----------------------------------------------------------------------------------------------

    @classmethod
    async def create(cls, log: SessionLog, wiring: Wiring, opening: SessionCreated) -> Session:
        """A new session; `opening` fixes its system text and tool block for good."""
        session = cls(log, wiring)
        session.opening.append(await session.record(opening))
        return session

    @classmethod
    async def resume(cls, log: SessionLog, wiring: Wiring, opening: SessionCreated) -> Session:
        """An existing session: the conversation is what its log says. Damage in the log becomes a notice.

        What it may do is not: a log can come with a checkout, so its grants and its answers to approvals end with
        the process that gave them, and a mode that asks less than `opening` does is not taken over.

        Args:
            log: its log.
            wiring: what it works with.
            opening: what a new session would begin with; recorded where the log has lost its own beginning.
        """
        session = cls(log, wiring)
        noted: set[str] = set()
        begun = False
        for event in log.events():
            session.state.apply(event)
            if isinstance(event, Notice):
                noted.add(event.text)
            begun = begun or isinstance(event, SessionCreated)
        if not begun:
            session.opening.append(await session.record(opening))
        session.state.grants.clear()
        if _STRICTNESS[session.state.mode] < _STRICTNESS[opening.mode]:
            session.opening.append(await session.record(ModeChanged(mode=opening.mode, by="settings")))
        session.opening += await undo.record_interrupted(session, anew=True)
        for damage in log.damage:
            what = "cut off" if damage.torn else "skipped"
            text = f"line {damage.line} of the log was damaged and {what} ({damage.size} bytes): {damage.reason}"
            if text not in noted:
                session.opening.append(await session.record(Notice(level="warning", code="damaged_log", text=text)))
        return session

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Show every event, durable or not, to `listener` as it happens; returns the way to stop."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    # --- events out ---------------------------------------------------------------------------------------------

    async def record(self, event: DurableEvent, *, sync: bool = False) -> DurableEvent:
        """Write an event to the log, fold it in, and show it.

        Raises:
            StoreError: it could not be written. Nothing may be done that depends on it.
        """
        if self.state.turn_open and not event.turn:
            event = msgspec.structs.replace(event, turn=self.state.turn)
        event = msgspec.structs.replace(event, apart=True) if isinstance(event, MessageAdded) else event
        try:
            stored = await self.log.append(self._redactor.event(event), sync=sync)
        except StoreError:
            self.has_failed = True
            raise
        self.state.apply(stored)
        self._end_streams(stored)
        self.emit(stored)
        return stored

    def _end_streams(self, event: DurableEvent) -> None:
        """Show what the redactor held back of the streams that this event ends."""
        if isinstance(event, ToolFinished) and (text := self._redactor.rest(event.call_id)):
            self.emit(ToolOutput(call_id=event.call_id, text=text, turn=event.turn))
        elif isinstance(event, MessageAdded):
            if text := self._redactor.rest(ThinkingDelta.__name__):
                self.emit(ThinkingDelta(text=text, turn=event.turn))
            if text := self._redactor.rest(TextDelta.__name__):
                self.emit(TextDelta(text=text, turn=event.turn))

    async def keep(self, text: str) -> str:
        """Keep a long output beside the log, without secrets; returns its SHA-256."""
        return await self.log.put_blob(self._redactor.text(text).encode("utf-8", "surrogatepass"))

    async def keep_file(self, path: Path) -> str:
        """Take over a file that holds a long output, without secrets; returns its SHA-256."""
        await anyio.to_thread.run_sync(self._redactor.file, path)
        return await self.log.adopt_blob(path)

    def emit(self, event: Event) -> None:
        """Show an event to the listeners."""
        for listener in self._listeners:
            listener(event)

    def emit_live(self, event: EphemeralEvent) -> None:
        """Show an event that is not recorded."""
        if not self._listeners:
            return
        if isinstance(event, TextDelta | ThinkingDelta | ToolOutput):
            name = event.call_id if isinstance(event, ToolOutput) else type(event).__name__
            text = self._redactor.stream(name, event.text)
            if not text:
                return
            if text != event.text:
                event = msgspec.structs.replace(event, text=text)
        self.emit(event)

    # --- commands in ------------------------------------------------------------------------------------------

    async def send(self, command: Command) -> DurableEvent | None:
        """Accept a command. Returns the event that records it, on disk, where there is one."""
        if isinstance(command, Steer | Interrupt) and command.to not in ("", self.state.session):
            child = self.descendant(lambda session: session.state.session == command.to)
            return await child.send(command) if child is not None else None
        match command:
            case Submit() | Steer():
                return await self._receive(command)
            case Withdraw(input=input_id):
                if input_id in self.state.inputs:
                    return await self.record(InputWithdrawn(input=input_id), sync=True)
            case Approve():
                return await approvals.answer(self, command)
            case SetMode() | SetModel() | Rename():
                return await self._set(command)
            case Undo() | Redo():
                return await undo.restore(self, command)
            case Compact(focus=focus):
                self.wants_compaction = focus
            case Continue(by=by):
                self._go_on(by)
            case Interrupt():
                self._interrupt()
            case Close():
                self._interrupt()
                self.closed = True
            case _:
                return await self.wiring.orders[type(command)](self, command)
        return None

    def descendant(self, wanted: Callable[[Session], bool]) -> Session | None:
        """The first sub-agent at work, at any depth, that is wanted."""
        for child in self.children.values():
            if wanted(child):
                return child
            if (found := child.descendant(wanted)) is not None:
                return found
        return None

    async def _set(self, command: SetMode | SetModel | Rename) -> DurableEvent:
        match command:
            case SetMode():
                return await self._set_mode(command.mode, command.by)
            case SetModel(model=model, by=by):
                read = self.state.estimate_tokens() if self.state.messages else 0
                return await self.record(ModelChanged(model=model, by=by, tokens=read), sync=True)
            case Rename(title=title):
                return await self.record(SessionRenamed(title=title), sync=True)

    async def _set_mode(self, mode: PermissionMode, by: str) -> DurableEvent:
        """A sub-agent may never do more than whoever it works for, so a change goes down to those at work."""
        if self.above is not None and _STRICTNESS[mode] < _STRICTNESS[self.above.state.mode]:
            mode = self.above.state.mode
        stored = await self.record(ModeChanged(mode=mode, by=by), sync=True)
        for child in list(self.children.values()):
            await child.send(SetMode(mode=mode, by=by))
        return stored

    async def _receive(self, command: Submit | Steer) -> DurableEvent | None:
        if command.job and command.job in self.state.work.jobs:
            return None  # the log has it: whoever submitted it died before it could say so
        if isinstance(command, Steer):
            delivery = "steer" if self.running else "submit"
        else:
            delivery = "queue" if self.running else "submit"
        way = command.way if isinstance(command, Submit) else None
        event = InputReceived(message=command.message, delivery=delivery, by=command.by, job=command.job, way=way)
        return await self.record(event, sync=True)

    async def ask(self, request: ApprovalRequested) -> ApprovalResolved:
        """Put a call before a person and wait for the answer; nobody there is a denial."""
        return await approvals.ask(self, request)

    async def share(self, grant: str, by: str) -> None:
        """Let what was granted hold here and in every sub-agent at work."""
        await approvals.share(self, grant, by)

    # --- the lane ------------------------------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        """Whether a turn is running in this process."""
        return self.scope is not None

    def request(self) -> ModelRequest:
        """The next model call: the fixed block, then the conversation as it stands."""
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
            others=tuple(self.wiring.toolbox),
            nonce=state.nonce,
            longest=state.bytes(self.window.tokens // 2),
            joins=self.wiring.traits.joins(model or state.served_model),
        )

    def _go_on(self, by: str) -> None:
        self.wants_resume = True
        if by != SCHEDULER and not self.running:
            self.adopted.add(self.state.job)

    def _interrupt(self) -> None:
        if self.above is not None:
            self.closed = True  # a sub-agent is stopped for good, whatever else it was told
        if self.scope is not None:
            self.scope.cancel()

    def close(self) -> None:
        """Release the log."""
        self.closed = True
        self.log.close()
