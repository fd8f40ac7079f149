"""Events of long work: tasks, plans, modes of work, sub-agents."""

from __future__ import annotations

from typing import Literal

import msgspec

from lmagent.core.live import Envelope
from lmagent.core.messages import Message
from lmagent.core.model import Usage
from lmagent.core.work import Brief, Budget, ChildResult, Plan, Task, TaskState, WorkMode

PlanDecision = Literal["approved", "revise", "rejected"]


class TasksChanged(Envelope, frozen=True, tag="tasks.changed"):
    """The store of tasks changed.

    Attributes:
        items: tasks that are new or different, whole; in the order in which new ones are added.
        removed: ids of removed tasks.
        state: the task state, if it changed; an empty one clears it.
        by: `model`, or the surface through which the user did it.
        call: the model's call that did it; a call that a crash has repeated changes nothing a second time.
    """

    items: tuple[Task, ...] = ()
    removed: tuple[str, ...] = ()
    state: TaskState | None = None
    by: str = "model"
    call: str = ""


class PlanProposed(Envelope, frozen=True, tag="plan.proposed"):
    """The model proposes a plan; `id` names it. It waits for the user, across restarts."""

    plan: Plan


class PlanDecided(Envelope, frozen=True, tag="plan.decided"):
    """A plan was decided on.

    Attributes:
        proposal: id of the `plan.proposed`.
        decision: `approved`, `revise` (the model tries again with the feedback) or `rejected`.
        plan: the approved plan, with the user's edits.
        feedback: text for the model.
        by: the surface.
    """

    proposal: str
    decision: PlanDecision
    plan: Plan | None = None
    feedback: str = ""
    by: str = ""


class WorkChanged(Envelope, frozen=True, tag="work.changed"):
    """The session works in another mode.

    Attributes:
        mode: `plan` reads only; `deep` has a budget that is a hard total; `bounded` has few steps a turn.
        budget: from here on; a total that was set with plan mode continues when the plan is approved.
        then: the mode that follows when a plan is approved.
        by: the surface.
    """

    mode: WorkMode
    budget: Budget = Budget()
    then: WorkMode = "normal"
    by: str = ""


class ContextInherited(Envelope, frozen=True, tag="context.inherited"):
    """A sub-agent begins with its parent's conversation, so that a server that has read it need not read it again.

    Attributes:
        messages: the parent's conversation in its sent form, up to the call, with results for its calls.
        notes: the notes at the tail of the parent's conversation, by name.
        nonce: the parent's; see `ModelRequest.nonce`. Empty in logs of earlier versions.
    """

    messages: tuple[Message, ...]
    notes: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    nonce: str = ""


class SubagentStarted(Envelope, frozen=True, tag="subagent.started"):
    """A call has started a sub-agent's session.

    Attributes:
        call_id: the call.
        child: id of the session.
        task: the one of the call's tasks; empty if it has one.
        brief: its order.
    """

    call_id: str
    child: str
    brief: Brief
    task: str = ""


class SubagentFinished(Envelope, frozen=True, tag="subagent.finished"):
    """A sub-agent's session ended.

    Attributes:
        call_id: the call that started it.
        child: id of the session.
        result: its report, checked against the disk.
        usage: its tokens, and those of its own children; they count for the parent's budget.
        steps: model calls, likewise.
        task: the one of the call's tasks.
    """

    call_id: str
    child: str
    result: ChildResult
    usage: Usage = Usage()
    steps: int = 0
    task: str = ""


class ResultReported(Envelope, frozen=True, tag="result.reported"):
    """A sub-agent reported; its turn ends with it."""

    result: ChildResult
