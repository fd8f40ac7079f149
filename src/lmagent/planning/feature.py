"""Feature: what planning brings to a program. Cheap to build; everything else is imported when it is needed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from msgspec import Struct

from lmagent.core.commands import ChangeTasks, DecidePlan, SetWork
from lmagent.core.errors import StoreError
from lmagent.core.events import DurableEvent, Event, Notice, TurnFinished
from lmagent.core.tool import Tool
from lmagent.core.work import Budget
from lmagent.engine.review import Again, End, Fence, Review
from lmagent.engine.session import Order, Session
from lmagent.engine.state import SessionState
from lmagent.planning import notes, proposing
from lmagent.planning.tools import planning_tools

if TYPE_CHECKING:
    from lmagent.engine.endings import Ending
    from lmagent.planning.store import Store

Events = Callable[[str], Iterable[DurableEvent]]


class Choices(Struct, frozen=True):
    """The user's settings for planning.

    Attributes:
        small: says whether the window is too small for the tools of a batch.
    """

    todos: bool = True
    enforce: bool = True
    deep: Budget = Budget(200, 1_500_000)
    approve: bool = False
    small: Callable[[], bool] = lambda: False


class Planning(Review):
    """The tools, notes, review, fence and orders of planning."""

    def __init__(self, session: Callable[[str], Session], events: Events, choices: Choices) -> None:
        self._session = session
        self._events = events
        self._choices = choices
        self._reporting: WeakSet[Session] = WeakSet()

    @property
    def tools(self) -> Iterable[Tool]:
        return planning_tools(lambda: self._store, todos=self._choices.todos)

    @cached_property
    def _store(self) -> Store:
        from lmagent.planning.store import Store

        return Store(self._session)

    @property
    def notes(self) -> tuple[Callable[[str], str], ...]:
        told = (notes.tasks_note, notes.work_note, notes.plan_note, notes.budget_note, self._tools_note)
        return tuple(map(self._note, told))

    def _tools_note(self, state: SessionState) -> str:
        return notes.tools_note(state, self.tools, small=self._choices.small())

    def _note(self, tell: Callable[[Any], str]) -> Callable[[str], str]:
        return lambda session: tell(self._session(session).state)

    @property
    def fence(self) -> Fence:
        return proposing.fence

    @property
    def orders(self) -> Mapping[type, Order]:
        def late(name: str) -> Order:
            async def carry_out(session: Session, command: Any) -> DurableEvent | None:
                from lmagent.planning.orders import Orders

                order: Callable[[Session, Any], Awaitable[DurableEvent | None]]
                order = getattr(Orders(self._choices.deep), name)
                done = await order(session, command)
                self._watch(session)
                return done

            return carry_out

        return {SetWork: late("set_work"), DecidePlan: late("decide"), ChangeTasks: late("change_tasks")}

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
        work = session.state.work
        if work.decided is not None:
            from lmagent.planning.orders import settle

            await settle(session)
        if not session.state.turn_open:
            await self._approve(session)
        self._watch(session)
        if work.mode == "deep" and session.state.last_outcome and not session.state.turn_open:
            self._report(session)  # the existing report may be of the turn before

    async def _approve(self, session: Session) -> bool:
        """Approve the waiting plan if no user has to decide on it; returns whether it did."""
        if session.state.work.proposal is None or not (self._choices.approve or proposing.begins_unread(session.state)):
            return False
        from lmagent.planning.orders import Orders

        await Orders(self._choices.deep).decide(session, DecidePlan(decision="approved", by="settings"))
        self._watch(session)
        return True

    def _watch(self, session: Session) -> None:
        work = session.state.work
        if "deep" not in (work.mode, work.then) or session in self._reporting:
            return
        self._reporting.add(session)

        def listen(event: Event) -> None:
            if isinstance(event, TurnFinished) and event.cause != "plan" and session.state.work.mode == "deep":
                self._report(session)

        session.listen(listen)

    def _report(self, session: Session) -> None:
        from lmagent.planning import report

        state = session.state
        try:
            path = report.write(session.wiring.workspace, state, self._events(state.session))
        except StoreError as trouble:
            session.emit(
                Notice(
                    level="warning",
                    code="report",
                    text=trouble.message,
                    fix=trouble.fix,
                    terminal=trouble.terminal,
                    turn=state.turn,
                )
            )
            return
        told = path.relative_to(session.wiring.workspace)
        session.emit(Notice(level="info", code="report", text=f"a report of this work: {told}", turn=state.turn))
