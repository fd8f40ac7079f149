"""Session: one event log and one lane of work.

Commands come in through `send`, events go out to listeners; the lane (`engine/lane.py`) is the only place that
calls the model or a tool. Whatever happens is recorded first and folded into `state` second, so the state is never
ahead of the log.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

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
    Rename,
    SetMode,
    SetModel,
    Steer,
    Submit,
    Withdraw,
)
from lmagent.core.events import (
    ApprovalRequested,
    ApprovalResolved,
    DurableEvent,
    EphemeralEvent,
    Event,
    InputReceived,
    InputWithdrawn,
    ModeChanged,
    ModelChanged,
    Notice,
    SessionCreated,
    SessionRenamed,
)
from lmagent.core.model import ModelRequest
from lmagent.core.ports import Clock, Provider, SessionLog
from lmagent.engine.gate import Rules
from lmagent.engine.redact import Redactor
from lmagent.engine.state import SessionState
from lmagent.engine.toolbox import Toolbox

Listener = Callable[[Event], None]
NoteSource = Callable[[], str]
"""Gives a note for the tail, as `<name>text</name>`; it is sent when its text changes. Empty for nothing."""


class Wiring(Struct):
    """What a session works with. Put together once, by `app`.

    Attributes:
        provider: the model server.
        toolbox: the tools.
        clock: time.
        agent: prompt, model, limits, window.
        rules: permission rules of the configuration.
        attended: whether a person can answer approvals; without one, asking means denying.
        notes: what to keep the model informed of at the tail.
        secrets: values that must never reach the log or the model.
        served_window: asks the server for the window it serves for a model, in tokens; None when it does not say.
    """

    provider: Provider
    toolbox: Toolbox
    clock: Clock
    agent: Agent
    rules: Rules = field(default_factory=Rules)
    attended: bool = False
    notes: Sequence[NoteSource] = ()
    secrets: Sequence[str] = ()
    served_window: Callable[[str], Awaitable[int | None]] | None = None


class Session:
    """One session, open for writing."""

    def __init__(self, log: SessionLog, wiring: Wiring) -> None:
        self.log = log
        self.wiring = wiring
        self.agent = wiring.agent
        self.state = SessionState(session=log.session)
        self.window = wiring.agent.window
        self.window_known = False
        self.wants_compaction: str | None = None
        self.partial: list[str] = []
        self.opening: list[DurableEvent] = []
        """What was recorded before anybody could listen: the first event, notices about a damaged log."""
        self._redactor = Redactor(wiring.secrets)
        self._listeners: list[Listener] = []
        self._answers: dict[str, anyio.Event] = {}
        self._resolved: dict[str, ApprovalResolved] = {}
        self.scope: anyio.CancelScope | None = None
        self.wants_resume = False
        self.closed = False

    # --- opening ----------------------------------------------------------------------------------------------

    @classmethod
    async def create(cls, log: SessionLog, wiring: Wiring, opening: SessionCreated) -> Session:
        """A new session; `opening` fixes its system text and tool block for good."""
        session = cls(log, wiring)
        session.opening.append(await session.record(opening))
        return session

    @classmethod
    async def resume(cls, log: SessionLog, wiring: Wiring) -> Session:
        """An existing session: the state is what its log says. Damage in the log becomes a notice."""
        session = cls(log, wiring)
        noted: set[str] = set()
        for event in log.events():
            session.state.apply(event)
            if isinstance(event, Notice):
                noted.add(event.text)
        if not session.state.session:
            session.state.session = log.session
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
        stored = await self.log.append(self._redactor.event(event), sync=sync)
        self.state.apply(stored)
        self.emit(stored)
        return stored

    def emit(self, event: Event) -> None:
        """Show an event to the listeners."""
        for listener in self._listeners:
            listener(event)

    def emit_live(self, event: EphemeralEvent) -> None:
        """Show an event that is not recorded."""
        if self._listeners:
            self.emit(event)

    # --- commands in ------------------------------------------------------------------------------------------

    async def send(self, command: Command) -> DurableEvent | None:
        """Accept a command. Returns the event that records it, on disk, where there is one."""
        match command:
            case Submit() | Steer():
                return await self._receive(command)
            case Withdraw(input=input_id):
                if input_id in self.state.inputs:
                    return await self.record(InputWithdrawn(input=input_id))
            case Approve():
                return await self._answer(command)
            case SetMode(mode=mode, by=by):
                return await self.record(ModeChanged(mode=mode, by=by))
            case SetModel(model=model, by=by):
                return await self.record(ModelChanged(model=model, by=by))
            case Rename(title=title):
                return await self.record(SessionRenamed(title=title))
            case Compact(focus=focus):
                self.wants_compaction = focus
            case Continue():
                self.wants_resume = True
            case Interrupt():
                self._interrupt()
            case Close():
                self._interrupt()
                self.closed = True
        return None

    async def _receive(self, command: Submit | Steer) -> DurableEvent:
        if isinstance(command, Steer):
            delivery = "steer" if self.running else "submit"
        else:
            delivery = "queue" if self.running else "submit"
        event = InputReceived(message=command.message, delivery=delivery, by=command.by)
        return await self.record(event, sync=True)

    async def _answer(self, command: Approve) -> DurableEvent | None:
        request = self.state.approvals.get(command.approval)
        if request is None:
            return None  # somebody else was faster
        resolved = ApprovalResolved(
            approval=request.id,
            call_id=request.call_id,
            approved=command.approved,
            scope=command.scope if request.grant else "once",
            by=command.by,
            grant=request.grant if command.scope == "session" else "",
            feedback=command.feedback,
        )
        stored = await self.record(resolved, sync=True)
        assert isinstance(stored, ApprovalResolved)
        self._resolved[request.id] = stored
        if waiter := self._answers.get(request.id):
            waiter.set()
        return stored

    async def ask(self, request: ApprovalRequested) -> ApprovalResolved:
        """Put a call before a person and wait for the answer; nobody there is a denial."""
        pending = next((item for item in self.state.approvals.values() if item.call_id == request.call_id), None)
        stored = pending or await self.record(request)
        if not self.wiring.attended:
            denial = ApprovalResolved(approval=stored.id, call_id=request.call_id, approved=False, by="unattended")
            resolved = await self.record(denial)
            assert isinstance(resolved, ApprovalResolved)
            return resolved
        waiter = self._answers[stored.id] = anyio.Event()
        try:
            await waiter.wait()
            return self._resolved.pop(stored.id)
        finally:
            self._answers.pop(stored.id, None)

    # --- the lane ------------------------------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        """Whether a turn is running in this process."""
        return self.scope is not None

    def request(self) -> ModelRequest:
        """The next model call: the fixed block, then the conversation as it stands."""
        state, agent = self.state, self.agent
        # A cap on the reply that fills the window leaves no room for the prompt; some servers refuse that outright.
        cap = agent.max_tokens and min(agent.max_tokens, self.window.tokens // 2)
        return ModelRequest(
            model=state.model or agent.model,
            system=state.system,
            tools=state.tools,
            messages=state.messages,
            temperature=agent.temperature,
            max_tokens=cap,
            keep_thinking=agent.keep_thinking,
        )

    def _interrupt(self) -> None:
        if self.scope is not None:
            self.scope.cancel()

    def close(self) -> None:
        """Release the log."""
        self.closed = True
        self.log.close()
