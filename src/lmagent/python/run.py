"""Run: one turn of the agent for a program, as events or as its result."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractAsyncContextManager, aclosing
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, cast

from msgspec import Struct

from lmagent.core import events as ev
from lmagent.core.commands import Continue, Submit
from lmagent.core.errors import ConfigError, LmagentError
from lmagent.core.messages import user
from lmagent.core.model import Usage
from lmagent.python.answers import AnswerType, Misfit

if TYPE_CHECKING:
    from lmagent.python.session import AgentSession

T = TypeVar("T")

SURFACE = "python"
"""The name of this surface in the log."""

Status = Literal["done", "blocked", "waiting", "question", "limit", "interrupted", "error", "denied"]


class RunFailed(LmagentError):
    """The turn did not end as done, or its answer does not have the wanted type; `result` has what there is."""

    def __init__(self, message: str, result: RunResult[Any], *, fix: str = "") -> None:
        super().__init__(message, fix=fix)
        self.result = result


class RunResult(Struct, Generic[T], frozen=True):
    """How a turn ended.

    Attributes:
        text: the final answer, as the model wrote it.
        status: `denied` if a call was denied because no user could be asked; the others as in docs/events.md.
        reason: why it is not done.
        fix: what to do next.
        session: id of the session, to continue it.
        turn: number of the turn in the session.
        steps: model calls.
        usage: tokens, with those of sub-agents.
        changed: paths in the workspace that calls changed, by sub-agents too; not those of a call with very many.
        wanted: the type that the answer should have, if the run was given one.
    """

    text: str
    status: Status
    reason: str = ""
    fix: str = ""
    session: str = ""
    turn: int = 0
    steps: int = 0
    usage: Usage = Usage()
    changed: tuple[str, ...] = ()
    wanted: AnswerType[T] | None = None

    @property
    def answer(self) -> T:
        """Return the answer as the type that the run was given; None without a type.

        Raise RunFailed if the turn is not done, or the answer does not fit.
        """
        if self.wanted is None:
            return cast("T", None)
        self.raise_for_status()
        try:
            return self.wanted.read(self.text)
        except Misfit as misfit:  # the turn was ended by an earlier process, which wanted no such type
            raise RunFailed(f"the answer is no {self.wanted.name}: {misfit}", self) from None

    def raise_for_status(self) -> None:
        """Raise RunFailed unless the turn is done."""
        if self.status != "done":
            raise RunFailed(f"{self.status}: {self.reason or 'the turn is not done'}", self, fix=self.fix)

    def __repr__(self) -> str:
        return f"RunResult(status={self.status!r}, text={self.text!r}, session={self.session!r})"


class TurnTally:
    """The facts of a turn for its result, folded from its events."""

    def __init__(self) -> None:
        self.finished: ev.TurnFinished | None = None
        self.usage = Usage()
        self.changed = dict[str, None]()

    def take(self, event: ev.Event) -> None:
        match event:
            case ev.TurnFinished():
                self.finished = event
            case ev.StepFinished(usage=usage) | ev.SubagentFinished(usage=usage):
                self.usage += usage
            case ev.CompactionDone(usage=usage) if usage is not None:
                self.usage += usage
            case _:
                inner = ev.innermost(event)[1]
                if isinstance(inner, ev.FilesChanged):
                    self.changed.update((change.path, None) for change in inner.changes)

    def result(self, session: str, wanted: AnswerType[T] | None) -> RunResult[T]:
        end = self.finished
        assert end is not None
        return RunResult(
            text=end.answer,
            status=cast("Status", end.ending),
            reason=end.reason if end.ending != "done" else "",
            fix=end.fix,
            session=session,
            turn=end.turn,
            steps=end.steps,
            usage=self.usage,
            changed=tuple(self.changed),
            wanted=wanted,
        )


class AgentRun(Generic[T]):
    """One turn, which begins when the program awaits it or iterates over it.

        result = await agent.run("What does a lamp cost?")

        run = agent.run("Tidy the folder")
        async for event in run:
            ...
        run.result

    A program that leaves the loop early interrupts the turn.
    """

    def __init__(
        self,
        opened: Callable[[], AbstractAsyncContextManager[AgentSession]],
        command: Submit | Continue,
        wanted: AnswerType[T] | None,
    ) -> None:
        self._opened = opened
        self._command = command
        self._wanted = wanted
        self._is_begun = False
        self._result: RunResult[T] | None = None
        self.session = ""

    @property
    def result(self) -> RunResult[T]:
        """Return how the turn ended. Raise RuntimeError before its end."""
        if self._result is None:
            raise RuntimeError("this run has not ended: await it, or iterate over it to its end")
        return self._result

    def __await__(self) -> Generator[Any, None, RunResult[T]]:
        return self._wait().__await__()

    async def _wait(self) -> RunResult[T]:
        async with aclosing(self._events()) as events:
            async for _ in events:
                pass
        return self.result

    def __aiter__(self) -> AsyncGenerator[ev.Event]:
        return self._events()

    async def _events(self) -> AsyncGenerator[ev.Event]:
        if self._is_begun:
            raise RuntimeError("this run has begun already: call run() or send() again for another turn")
        self._is_begun = True
        tally = TurnTally()
        async with self._opened() as session:
            self.session = session.id
            async with aclosing(session.work(self._command, self._wanted, tally)) as events:
                async for event in events:
                    yield event
            self._result = tally.result(session.id, self._wanted)


def run_of(
    opened: Callable[[], AbstractAsyncContextManager[AgentSession]], task: str | None, answer: Any
) -> AgentRun[Any]:
    """Return the run of a task, or without one of a turn that was left; `answer` is the type of its answer.

    With a type, the model reads its schema with the task.
    """
    wanted = AnswerType[Any](answer) if answer is not None else None
    if task is None:
        return AgentRun(opened, Continue(by=SURFACE), wanted)
    if not task.strip():
        raise ConfigError("the task is empty", fix="say what to do; resume() finishes a turn that was left")
    text = f"{task}\n\n{wanted.instruction}" if wanted is not None else task
    return AgentRun(opened, Submit(message=user(text), by=SURFACE), wanted)
