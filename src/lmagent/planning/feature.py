"""Feature: what planning brings to a program. Cheap to build; everything else is imported when it is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from msgspec import Struct

from lmagent.core.commands import ChangeTasks, DecidePlan, SetWork
from lmagent.core.errors import StoreError
from lmagent.core.events import DurableEvent, Event, Notice, TurnFinished
from lmagent.core.tool import Tool
from lmagent.core.work import Budget
from lmagent.engine.review import Again, End, Review
from lmagent.engine.session import Order, Session
from lmagent.engine.state import SessionState
from lmagent.planning import notes, proposing
from lmagent.planning.tools import planning_tools

if TYPE_CHECKING:
    from lmagent.engine.endings import Ending
    from lmagent.planning.tasks import Store


class Choices(Struct, frozen=True):
    """The user's settings for planning."""

    todos: bool = True
    enforce: bool = True  # a turn is not done while steps of the approved plan are open (`ENABLE_PLAN_ENFORCEMENT`)
    deep: Budget = Budget(200, 1_500_000)
    approve: bool = False  # plans are approved unread
    small: Callable[[], bool] = lambda: False  # says whether the window is too small for the tools of a batch


class Planning(Review):
    """The tools, notes, review, fence and orders of planning."""

    hidden = (*notes.STEPS, *notes.BATCH, "todo_complete")  # todo_update completes todos too
    """Tools that the catalogue leaves out: a note lists them once they are of use."""

    fence = staticmethod(proposing.fence)

    def __init__(
        self,
        session: Callable[[str], Session],
        events: Callable[[str], Iterable[DurableEvent]],
        choices: Choices,
    ) -> None:
        self._session = session
        self._events = events
        self._choices = choices
        self._reporting: WeakSet[Session] = WeakSet()

    @property
    def tools(self) -> Iterable[Tool]:
        return planning_tools(lambda: self._store, todos=self._choices.todos)

    @cached_property
    def _store(self) -> Store:
        from lmagent.planning.tasks import Store

        return Store(self._session)

    @property
    def notes(self) -> tuple[Callable[[str], str], ...]:
        def note(tell: Callable[[SessionState], str], session: str) -> str:
            return tell(self._session(session).state)

        told = (notes.tasks_note, notes.work_note, notes.plan_note, notes.budget_note, self._tools_note)
        return tuple(partial(note, tell) for tell in told)

    def _tools_note(self, state: SessionState) -> str:
        return notes.tools_note(state, self.tools, small=self._choices.small())

    @property
    def orders(self) -> Mapping[type, Order]:
        return dict.fromkeys((SetWork, DecidePlan, ChangeTasks), self._carry_out)

    async def _carry_out(self, session: Session, command: Any) -> DurableEvent:
        from lmagent.planning.orders import carry_out

        event = await carry_out(session, command, self._choices.deep)
        self._watch(session)
        return event

    # --- the review -----------------------------------------------------------------------------------------------

    async def after_calls(self, session: Session) -> End | None:
        """End a turn of plan mode that only keeps looking around."""
        return proposing.after_calls(session)

    async def at_end(self, session: Session, ending: Ending, answer: str) -> End | Again | None:
        """Ask for a missing plan, or for work on the open tasks."""
        work = session.state.work
        if work.decided is not None and work.decided.turn == session.state.turn and work.decided.decision == "approved":
            return proposing.APPROVED  # a crash came between the decision and the end of its turn
        if work.mode == "plan":
            end = await proposing.at_end(session, ending, answer)
            return proposing.APPROVED if await self._approve(session) else end
        if not work.tasks and not work.state.completion_gate:
            return None
        from lmagent.planning import finishing

        return finishing.at_end(session, ending, answer, enforce=self._choices.enforce)

    # --- sessions that are opened ------------------------------------------------------------------------------

    async def opened(self, session: Session) -> None:
        """Complete a decision or a report that a crash interrupted."""
        state = session.state
        if state.work.decided is not None:
            from lmagent.planning.orders import settle

            await settle(session)
        if not state.turn_open:
            await self._approve(session)
        self._watch(session)
        if state.work.mode == "deep" and state.last_outcome and not state.turn_open:
            self._report(session)  # the existing report may be of the turn before

    async def _approve(self, session: Session) -> bool:
        """Approve the waiting plan if no user has to decide on it; return whether it did."""
        if session.state.work.proposal is None or not (self._choices.approve or proposing.begins_unread(session.state)):
            return False
        await self._carry_out(session, DecidePlan(decision="approved", by="settings"))
        return True

    def _watch(self, session: Session) -> None:
        """Write a report at the end of each turn of deep work."""
        if session in self._reporting or "deep" not in (session.state.work.mode, session.state.work.then):
            return
        self._reporting.add(session)

        def listen(event: Event) -> None:
            if isinstance(event, TurnFinished) and event.cause != "plan" and session.state.work.mode == "deep":
                self._report(session)

        session.listen(listen)

    def _report(self, session: Session) -> None:
        from lmagent.planning import report

        state, workspace = session.state, session.wiring.workspace
        try:
            path = report.write(workspace, state, self._events(state.session))
            text = f"a report of this work: {path.relative_to(workspace)}"
            notice = Notice(level="info", code="report", text=text, turn=state.turn)
        except StoreError as trouble:
            notice = Notice(level="warning", code="report", text=trouble.message, fix=trouble.fix, turn=state.turn)
        session.emit(notice)
