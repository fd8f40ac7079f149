"""Session: a conversation of a program with the agent, over several turns. A process may end, and another resume it."""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, nullcontext, suppress
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast, overload

import anyio
import anyio.to_thread
from msgspec.structs import replace

from lmagent.app.open_session import OpenSession
from lmagent.app.runner import Runner
from lmagent.core import events as ev
from lmagent.core.commands import Approve, Continue, SetOptions, Steer, Submit
from lmagent.core.errors import ConfigError, LmagentError, SessionBusy, SessionNotFound, ShuttingDown
from lmagent.core.ids import is_session_id
from lmagent.core.messages import user
from lmagent.python.answers import AnswerType
from lmagent.python.run import SURFACE, AgentRun, TurnTally, run_of
from lmagent.python.service import AgentService

if TYPE_CHECKING:
    from lmagent.core.model import SessionOptions

T = TypeVar("T")

Reply = bool | str
"""True allows a call, False denies it; a text denies it and is shown to the model."""

Approver = Callable[[ev.ApprovalRequested], Reply | Awaitable[Reply]]


class AgentSession:
    """A session that the program has open: `async with agent.session() as session`.

    Attributes:
        id: its id, with which `agent.session(id)` opens it again, also in another process.
    """

    def __init__(self, service: AgentService, runner: Runner, known: OpenSession, approve: Approver | None) -> None:
        self.id = known.id
        self._service = service
        self._runner = runner
        self._known = known
        self._approve = approve
        self._is_followed = False
        self._unseen = [*known.session.opening]
        self._asked = set[str]()
        self._failure: Exception | None = None

    @classmethod
    async def open(
        cls, service: AgentService, id: str, *, create: bool, approve: Approver | None, instructions: str
    ) -> AgentSession:
        """Open a session, or begin one: without an id, or if none has it and `create` is given."""
        runner = await service.runner()
        known = await _opened(runner, id, create=create)
        options: SessionOptions = known.session.state.work.options
        if instructions and options.instructions != instructions:
            await runner.send(known.id, SetOptions(options=replace(options, instructions=instructions)))
        return cls(service, runner, known, approve)

    async def close(self) -> None:
        """Interrupt a turn that runs, and release the session: other processes can open it."""
        with anyio.CancelScope(shield=True):
            await self._runner.release(self.id)

    # --- turns ------------------------------------------------------------------------------------------------------

    @property
    def is_unfinished(self) -> bool:
        """Whether an earlier process left a turn, or a message without one, that `resume` finishes."""
        state = self._known.session.state
        return not self._known.is_working and bool(state.turn_open or state.owes_reply or state.inputs)

    @overload
    def send(self, task: str) -> AgentRun[None]: ...
    @overload
    def send(self, task: str, *, answer: type[T]) -> AgentRun[T]: ...
    def send(self, task: str, *, answer: Any = None) -> AgentRun[Any]:
        """Send a message, which begins a turn. `answer` is the type that its final answer shall have."""
        return run_of(lambda: nullcontext(self), task, answer)

    @overload
    def resume(self) -> AgentRun[None]: ...
    @overload
    def resume(self, *, answer: type[T]) -> AgentRun[T]: ...
    def resume(self, *, answer: Any = None) -> AgentRun[Any]:
        """Finish the turn that an earlier process left."""
        return run_of(lambda: nullcontext(self), None, answer)

    async def work(
        self, command: Submit | Continue, wanted: AnswerType[Any] | None, tally: TurnTally
    ) -> AsyncGenerator[ev.Event]:
        """Carry out a command, and yield the events until the session is idle. `AgentRun` calls it."""
        if self._is_followed:
            raise SessionBusy(f"a turn is running in session {self.id}", fix="steer it, or wait for its end")
        if isinstance(command, Continue) and not self.is_unfinished:
            raise ConfigError(f"session {self.id} has no unfinished turn", fix="send a message: session.send(…)")
        self._is_followed, self._failure = True, None
        if wanted is not None:
            self._service.answers.wanted[self.id] = wanted
        try:
            async with aclosing(self._follow(command, tally)) as events:
                async for event in events:
                    yield event
        finally:
            self._service.answers.wanted.pop(self.id, None)
            self._is_followed = False
        if self._failure is not None:
            raise self._failure
        if tally.finished is None:
            raise self._known.failure or ShuttingDown(
                "the agent was closed before the turn began", fix="the message is in the session: resume it"
            )

    async def _follow(self, command: Submit | Continue, tally: TurnTally) -> AsyncGenerator[ev.Event]:
        known = self._known = await self._runner.open(self.id, take_up=False)
        tasks = await self._runner.ready()
        heard = _Heard()

        def hear(event: ev.Event) -> None:
            heard.put(event)
            _, inner = ev.innermost(event)
            if isinstance(inner, ev.ApprovalRequested) and self._approve and inner.id not in self._asked:
                self._asked.add(inner.id)
                tasks.start_soon(self._ask, self._approve, inner)

        stop, is_over = known.session.listen(hear), False
        try:
            unseen, self._unseen = self._unseen, []
            for event in unseen:  # recorded before any listener
                yield event
            await self._runner.send(self.id, command)
            tasks.start_soon(_end_when_idle, known, heard)
            async for event in heard.events():
                tally.take(event)
                yield event
            is_over = True
        finally:
            with anyio.CancelScope(shield=True), suppress(LmagentError):
                if not is_over:
                    await self.interrupt()
            stop()

    # --- while a turn runs ------------------------------------------------------------------------------------------

    async def steer(self, text: str) -> None:
        """Give the running turn a message: the model gets it with the next result."""
        if not self._known.is_working:
            raise ConfigError(f"no turn is running in session {self.id}", fix="send it: session.send(…)")
        await self._runner.send(self.id, Steer(message=user(text), by=SURFACE))

    async def interrupt(self) -> None:
        """End the running turn, and take back messages that wait for it. What it did until then stays.

        Return once its end is on disk.
        """
        await self._runner.stop(self.id, SURFACE)

    async def approve(self, question: ev.ApprovalRequested | str, *, always: bool = False) -> bool:
        """Allow a call; `always` allows all calls like it in this session.

        Return False if the question is open no more: it was answered, or its turn has ended.
        """
        return await self._answer(question, Approve(approval="", approved=True, scope="session" if always else "once"))

    async def deny(self, question: ev.ApprovalRequested | str, reason: str = "") -> bool:
        """Deny a call; the model reads the reason. Return as `approve` does."""
        return await self._answer(question, Approve(approval="", approved=False, feedback=reason))

    async def _answer(self, question: ev.ApprovalRequested | str, command: Approve) -> bool:
        approval = question if isinstance(question, str) else question.id
        return await self._runner.send(self.id, replace(command, approval=approval, by=SURFACE)) is not None

    async def _ask(self, approve: Approver, question: ev.ApprovalRequested) -> None:
        """Have the program's function answer a question. Its failure ends the turn, and the run raises it."""
        try:
            reply = await _reply(approve, question)
        except Exception as failure:  # noqa: BLE001 - it is raised again, in the program's own task
            self._failure = failure
            with suppress(LmagentError):
                await self.interrupt()
            return
        with suppress(LmagentError):
            if reply is True:
                await self.approve(question)
            else:
                await self.deny(question, reply if isinstance(reply, str) else "")


async def _opened(runner: Runner, id: str, *, create: bool) -> OpenSession:
    if not id:
        return await runner.begin()
    if create and not is_session_id(id):
        raise ConfigError(f"{id!r:.80} cannot be the id of a session", fix="use letters, digits, dots, - and _")
    try:
        found = runner.host.store.resolve(id)
        if create and found != id:  # the beginning of another one's
            raise SessionNotFound(f"there is no session {id}")
    except SessionNotFound:
        if not create:
            raise
        return await runner.begin(id)
    if found in runner.sessions:
        raise SessionBusy(f"this program has session {found} open already", fix="use that, or close it first")
    return await runner.open(found, take_up=False)


async def _reply(approve: Approver, question: ev.ApprovalRequested) -> Reply:
    if inspect.iscoroutinefunction(approve):
        return cast("Reply", await approve(question))
    reply = await anyio.to_thread.run_sync(approve, question, abandon_on_cancel=True)
    return await reply if inspect.isawaitable(reply) else reply


class _Heard:
    """The events that the program has not taken yet. Putting one never fails: a session's log depends on it."""

    def __init__(self) -> None:
        self._waiting = deque[ev.Event]()
        self._is_over = False
        self._news = anyio.Event()

    def put(self, event: ev.Event) -> None:
        self._waiting.append(event)
        self._news.set()

    def end(self) -> None:
        self._is_over = True
        self._news.set()

    async def events(self) -> AsyncGenerator[ev.Event]:
        while self._waiting or not self._is_over:
            while self._waiting:
                yield self._waiting.popleft()
            if not self._is_over:
                self._news = anyio.Event()
                await self._news.wait()


async def _end_when_idle(known: OpenSession, heard: _Heard) -> None:
    try:
        await known.until_idle()
    finally:
        heard.end()


ApproveBy = Approver | Literal["events"] | None
