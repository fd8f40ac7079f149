"""Work: a session's tasks and plans, as data. One store of tasks; todos, plan steps and task trees are views.

Names and fields follow the tools that earlier agents had (todo_*, plan_*, task_state_*, manage_tasks, delegate).
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct, field

TaskKind = Literal["todo", "step", "task"]
TaskStatus = Literal["pending", "in_progress", "completed", "blocked", "failed", "skipped"]
WorkMode = Literal["normal", "bounded", "plan", "deep"]
DeliverableType = Literal["file", "files", "data", "report"]
ChildStatus = Literal["ok", "blocked", "partial", "error"]
Proof = Literal["", "verified", "partly verified", "failed", "unchecked", "unverified"]
"""The verdict on a turn's changes; logs of earlier versions say `unverified` for `failed` and `unchecked`."""


class Way(Struct, frozen=True, omit_defaults=True):
    """A session's mode of work from a turn on.

    Attributes:
        mode: see `WorkChanged`.
        then: the mode that follows when a plan is approved.
    """

    mode: WorkMode
    then: WorkMode = "normal"


class Task(Struct, frozen=True, omit_defaults=True):
    """One thing to do.

    Attributes:
        id: unique in the session.
        kind: `todo` of the model's own list, `step` of an approved plan, `task` of a tree.
        title: in a few words.
        status: how far it is.
        notes: additions of the model or the user.
        verification: how to see that it is done.
        depends_on: ids that must be completed first.
        parent: the task that it is a part of; empty for none.
        risk: what may fail.
        result: its result.
    """

    id: str
    kind: TaskKind
    title: str
    status: TaskStatus = "pending"
    notes: str = ""
    verification: str = ""
    depends_on: tuple[str, ...] = ()
    parent: str = ""
    risk: str = ""
    result: str = ""

    @property
    def is_open(self) -> bool:
        """Whether it is not over."""
        return self.status in ("pending", "in_progress", "blocked")


class TaskState(Struct, frozen=True, omit_defaults=True):
    """The progress of a batch, in the model's own words.

    Attributes:
        objective: the purpose of the whole.
        completion_gate: the condition for the end (`processed == total`).
        total_count: items in all; None when not known.
        processed_count: items done.
        remaining_queue: items to do, in order.
        rename_map: old names to new ones.
        last_error: the last failure; empty for none.
        recovery_instruction: what to do about it.
        next_action: the next thing to do.
    """

    objective: str = ""
    completion_gate: str = ""
    total_count: int | None = None
    processed_count: int = 0
    remaining_queue: tuple[str, ...] = ()
    rename_map: dict[str, str] = field(default_factory=dict[str, str])
    last_error: str = ""
    recovery_instruction: str = ""
    next_action: str = ""


class PlanStep(Struct, frozen=True, omit_defaults=True):
    """A step of a plan.

    Attributes:
        id: unique in the plan.
        description: the work.
        verification: how to see that it is done.
        risk: what may fail.
        dependencies: ids of steps that come first.
    """

    id: str
    description: str
    verification: str = ""
    risk: str = ""
    dependencies: tuple[str, ...] = ()


class Plan(Struct, frozen=True, omit_defaults=True):
    """The model's proposal.

    Attributes:
        title: in a few words.
        goal: the state at the end.
        risk_areas: what may fail.
        steps: in order.
    """

    title: str
    goal: str
    steps: tuple[PlanStep, ...]
    risk_areas: tuple[str, ...] = ()


class Budget(Struct, frozen=True, omit_defaults=True):
    """A hard total over all turns from the event that sets it, sub-agents and compactions included.

    Attributes:
        steps: model calls; None is unlimited.
        tokens: prompt + reply tokens; None is unlimited.
    """

    steps: int | None = None
    tokens: int | None = None


class Parent(Struct, frozen=True):
    """The call whose sub-agent a session is.

    Attributes:
        session: id of the session that asked.
        call_id: its call.
        task: the one of the call's tasks, if it has several.
        depth: 1 for a child of a user's session.
    """

    session: str
    call_id: str
    task: str = ""
    depth: int = 1


class Deliverable(Struct, frozen=True, omit_defaults=True):
    """The expected result of a sub-agent.

    Attributes:
        type: `file` or `files` on disk, `data` in the result, `report` as its summary.
        description: in words.
        path: of the file, relative to the workspace.
        paths: of the files.
        format: json, csv, markdown, python …; empty for any.
        schema: JSON schema of the data.
    """

    type: DeliverableType
    description: str
    path: str = ""
    paths: tuple[str, ...] = ()
    format: str = ""
    schema: dict[str, Any] | None = None


class Brief(Struct, frozen=True, omit_defaults=True):
    """A sub-agent's order; `.lmagent/agents/<agent_id>/brief.json`.

    Attributes:
        agent_id: id of its session.
        parent_id: id of the session that asked.
        depth: 1 for a child of a user's session.
        max_depth: the depth at which no session may delegate further.
        objective: the task.
        deliverable: the expected result.
        data: facts from the parent's conversation that it needs.
        constraints: rules for the work.
        parent_objective: the purpose of the whole.
        scope_path: its scratch folder, relative to the workspace.
        parent_scope: the parent's scratch folder.
        session_id: the session at the root.
        created_at: Unix seconds.
        agent: the name of the agent that does it; empty for one like its parent.
    """

    agent_id: str
    parent_id: str
    depth: int
    max_depth: int
    objective: str
    deliverable: Deliverable
    data: str = ""
    constraints: tuple[str, ...] = ()
    parent_objective: str = ""
    scope_path: str = ""
    parent_scope: str = ""
    session_id: str = ""
    created_at: float = 0.0
    agent: str = ""


class ChildResult(Struct, frozen=True, omit_defaults=True):
    """A sub-agent's report; `.lmagent/agents/<agent_id>/result.json`.

    Attributes:
        agent_id: id of its session.
        status: how it ended.
        summary: in words.
        artifacts: paths of files that it made or changed, relative to the workspace.
        data: its findings, if data was asked for.
        error: the failure; empty for none.
        iterations: model calls.
        created_at: Unix seconds.
    """

    agent_id: str
    status: ChildStatus
    summary: str
    artifacts: tuple[str, ...] = ()
    data: Any = None
    error: str = ""
    iterations: int = 0
    created_at: float = 0.0
