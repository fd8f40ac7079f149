"""Work: the part of the fold that knows tasks, plans, modes of work and sub-agents."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from msgspec import Struct, ValidationError, field
from msgspec.structs import replace

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

    def reopened(self, turns: Collection[int]) -> ev.TasksChanged | None:
        """Return the event that opens tasks again that the model closed in these turns; None if nothing changes.

        A task that was changed since stays.
        """
        done = {task.id: task for event in self.calls.values() if event.turn in turns for task in event.items}
        closed = [task for task in done.values() if not task.is_open and self.tasks.get(task.id) == task]
        items = tuple(replace(task, status="pending", result="") for task in closed)
        return ev.TasksChanged(items=items, by="undo") if items else None

    def _change(self, event: ev.TasksChanged) -> None:
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
