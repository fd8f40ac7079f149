"""Work: the part of the fold that knows tasks, plans, modes of work and sub-agents."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from msgspec import Struct, ValidationError, field

from lmagent.core import events as ev
from lmagent.core.decoding import convert
from lmagent.core.ids import InputOrigin
from lmagent.core.model import SessionOptions, Usage
from lmagent.core.work import Budget, ChildResult, Parent, Plan, Task, TaskState, WorkMode

WorkEvent = (
    ev.TasksChanged
    | ev.PlanProposed
    | ev.PlanDecided
    | ev.WorkChanged
    | ev.OptionsChanged
    | ev.SubagentStarted
    | ev.SubagentFinished
    | ev.ResultReported
)


class TurnTasks(Struct):
    """The model's changes to its tasks in a turn, as pairs of before and after; None for a missing task."""

    tasks: dict[str, tuple[Task | None, Task | None]] = field(
        default_factory=dict[str, tuple["Task | None", "Task | None"]]
    )
    state: tuple[TaskState, TaskState] | None = None


class WorkState(Struct):
    """The session's tasks, plan, mode of work and options. Read it freely; change it only by `apply`.

    Attributes:
        parent: set in a sub-agent's session.
        budget: a hard total since it was set; earlier usage is in `spent_before` and `steps_before`.
        children: sub-agents by their call and its task.
        reported_in: the turn of that report; later input opens another turn, with a new report.
        calls: changes of the tasks by the model's calls, by call.
        others: changes of the tasks by others than the model, in order.
        options: the session's own values in place of the settings.
    """

    parent: Parent | None = None
    tasks: dict[str, Task] = field(default_factory=dict[str, Task])
    state: TaskState = TaskState()
    proposal: ev.PlanProposed | None = None
    plan: Plan | None = None
    mode: WorkMode = "normal"
    then: WorkMode = "normal"
    budget: Budget = Budget()
    spent_before: int = 0
    steps_before: int = 0
    children: dict[tuple[str, str], ev.SubagentStarted] = field(
        default_factory=dict[tuple[str, str], ev.SubagentStarted]
    )
    results: dict[tuple[str, str], ChildResult] = field(default_factory=dict[tuple[str, str], ChildResult])
    child_usage: Usage = field(default_factory=Usage)
    child_steps: int = 0
    reported: ChildResult | None = None
    reported_in: int = 0
    origins: set[InputOrigin] = field(default_factory=set[InputOrigin])
    calls: dict[str, ev.TasksChanged] = field(default_factory=dict[str, ev.TasksChanged])
    others: list[ev.TasksChanged] = field(default_factory=list[ev.TasksChanged])
    decided: ev.PlanDecided | None = None
    turns: dict[int, TurnTasks] = field(default_factory=dict[int, "TurnTasks"])
    options: SessionOptions = SessionOptions()

    def apply(self, event: WorkEvent, spent: int, steps: int) -> None:
        """Fold one event in; `spent` (tokens) and `steps` are totals of the session and its sub-agents."""
        match event:
            case ev.TasksChanged():
                self._change(event)
            case ev.PlanProposed():
                self.proposal = event
            case ev.PlanDecided():
                self._decide(event)
            case ev.WorkChanged():
                self._work(event, spent, steps)
            case ev.OptionsChanged():
                self.options = event.options
            case ev.SubagentStarted():
                self.children[event.call_id, event.task] = event
            case ev.SubagentFinished():
                self.results[event.call_id, event.task] = event.result
                self.child_usage = self.child_usage + event.usage
                self.child_steps += event.steps
            case ev.ResultReported():
                self.reported, self.reported_in = event.result, event.turn

    def put_back(self, turns: Iterable[int], to: Literal["before", "after"]) -> ev.TasksChanged | None:
        """Return the event that sets tasks to their state before or after the model's turns; None if nothing changes.

        Later changes by others than the model stay.
        """
        back, tasks, state = to == "before", dict(self.tasks), self.state
        for turn in sorted(turns, reverse=back):
            done = self.turns.get(turn, TurnTasks())
            for id, pair in reversed(done.tasks.items()) if back else done.tasks.items():
                found, wanted = pair[::-1] if back else pair
                if tasks.get(id) != found:
                    continue
                if wanted is not None:
                    tasks[id] = wanted
                elif not any(id in other.depends_on or id == other.parent for other in tasks.values()):
                    tasks.pop(id, None)
            if done.state is not None and state == done.state[1 if back else 0]:
                state = done.state[0 if back else 1]
        items = tuple(task for id, task in tasks.items() if self.tasks.get(id) != task)
        removed = tuple(id for id in self.tasks if id not in tasks)
        if not items and not removed and state == self.state:
            return None
        changed = state if state != self.state else None
        return ev.TasksChanged(items=items, removed=removed, state=changed, by="undo" if back else "redo")

    def _note_turn(self, event: ev.TasksChanged) -> None:
        done = self.turns.setdefault(event.turn, TurnTasks())
        after: dict[str, Task | None] = {task.id: task for task in event.items} | dict.fromkeys(event.removed)
        for id, task in after.items():
            before = done.tasks[id][0] if id in done.tasks else self.tasks.get(id)
            done.tasks[id] = (before, task)
        if event.state is not None:
            done.state = (done.state[0] if done.state is not None else self.state, event.state)

    def _change(self, event: ev.TasksChanged) -> None:
        if event.by == "model":
            self._note_turn(event)
        for task in event.items:
            self.tasks[task.id] = task
        for id in event.removed:
            self.tasks.pop(id, None)
        if event.state is not None:
            self.state = event.state
        if event.call:
            self.calls[event.call] = event
        if event.by != "model":
            self.others.append(event)

    def _work(self, event: ev.WorkChanged, spent: int, steps: int) -> None:
        approved = self.mode == "plan" and event.mode == self.then and event.budget == self.budget
        if not approved:  # the budget of an approved plan includes the planning
            self.spent_before, self.steps_before = spent, steps
        self.mode, self.then, self.budget = event.mode, event.then, event.budget
        if self.decided is not None and self.decided.decision == "rejected":
            self.decided = None  # it has no further effect

    def _decide(self, event: ev.PlanDecided) -> None:
        self.decided = event
        if self.proposal is not None and event.proposal == self.proposal.id:
            if event.decision == "approved":
                self.plan = event.plan or self.proposal.plan
            self.proposal = None


def usage_beside(event: ev.ToolFinished) -> Usage | None:
    """Return the usage of a tool's own model call; None for a tool that makes none."""
    if event.tool != "vision":
        return None
    try:
        return convert(event.data.get("usage"), Usage | None)
    except ValidationError:  # a log is untrusted
        return None


_MISCALLED = ("malformed_arguments", "invalid_arguments", "unknown_tool", "cut_off")
"""Codes of results of calls that could not be carried out."""


class Calling(Struct):
    """Whether and how often the model was constrained, and its good calls in a row since that last changed."""

    constrained: bool = False
    times: int = 0
    good: int = 0

    def apply(self, event: ev.CallsConstrained) -> None:
        self.constrained, self.good = not event.lifted, 0
        self.times += self.constrained

    def finished(self, data: dict[str, Any]) -> None:
        self.good = 0 if data.get("code") in _MISCALLED else self.good + 1
