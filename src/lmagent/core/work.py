"""Work: what a session has set itself to do, as data. One store of tasks; todos, plan steps and task trees are views.

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
    """How a session is to work from a turn on.

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
        title: what is to be done.
        status: how far it is.
        notes: what the model or a person added.
        verification: how to see that it is done.
        depends_on: ids that must be completed first.
        parent: the task that it is a part of; empty for none.
        risk: what may go wrong.
        result: what came of it.
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
        """It is not over."""
        return self.status in ("pending", "in_progress", "blocked")


class TaskState(Struct, frozen=True, omit_defaults=True):
    """Where a batch stands, in the model's own words.

    Attributes:
        objective: what the whole is for.
        completion_gate: what must hold before the end (`processed == total`).
        total_count: items in all; None when not known.
        processed_count: items done.
        remaining_queue: items to do, in order.
        rename_map: old names to new ones.
        last_error: what failed last; empty for nothing.
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
        description: what is done.
        verification: how to see that it is done.
        risk: what may go wrong.
        dependencies: ids of steps that come first.
    """

    id: str
    description: str
    verification: str = ""
    risk: str = ""
    dependencies: tuple[str, ...] = ()


class Plan(Struct, frozen=True, omit_defaults=True):
    """What the model proposes to do.

    Attributes:
        title: in a few words.
        goal: what will hold at the end.
        risk_areas: what may go wrong.
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
    """Of which call a session is the sub-agent.

    Attributes:
        session: id of the session that asked.
        call_id: its call.
        task: which of the call's tasks, where it has several.
        depth: 1 for a child of a person's session.
    """

    session: str
    call_id: str
    task: str = ""
    depth: int = 1


class Deliverable(Struct, frozen=True, omit_defaults=True):
    """What a sub-agent has to bring.

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
    """What a sub-agent is told; `.lmagent/agents/<agent_id>/brief.json`.

    Attributes:
        agent_id: id of its session.
        parent_id: id of the session that asked.
        depth: 1 for a child of a person's session.
        max_depth: the depth at which nobody may delegate further.
        objective: what is to be done.
        deliverable: what it has to bring.
        data: facts from the parent's conversation that it needs.
        constraints: what must hold.
        parent_objective: what the whole is for.
        scope_path: its scratch folder, relative to the workspace.
        parent_scope: the scratch folder of who asked.
        session_id: the session at the root.
        created_at: Unix seconds.
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


class ChildResult(Struct, frozen=True, omit_defaults=True):
    """What a sub-agent reports; `.lmagent/agents/<agent_id>/result.json`.

    Attributes:
        agent_id: id of its session.
        status: how it ended.
        summary: in words.
        artifacts: paths of files that it made or changed, relative to the workspace.
        data: what it found out, where data was asked for.
        error: what went wrong; empty for nothing.
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
