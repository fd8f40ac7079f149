"""The tools: descriptions and arguments for the model. The code of each is in the module that it names."""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal

from msgspec import UNSET, Struct, UnsetType

from lmagent.core.tool import Run, Tool, ToolContext, ToolOutput

if TYPE_CHECKING:
    from lmagent.planning.store import Store

TodoStatus = Literal["", "pending", "in_progress", "completed", "blocked"]


class NoArgs(Struct, frozen=True):
    pass


class TodoAdd(Struct, frozen=True):
    description: str
    notes: str = ""


class TodoComplete(Struct, frozen=True):
    todo_id: str | int


class TodoUpdate(Struct, frozen=True):
    todo_id: str | int
    status: TodoStatus = ""
    notes: str = ""


class StepDone(Struct, frozen=True):
    step_id: str | int
    verification_notes: str


class StateUpdate(Struct, frozen=True):
    """Arguments of task_state_update. A field that is left out keeps its value."""

    objective: str | UnsetType = UNSET
    completion_gate: str | UnsetType = UNSET
    total_count: int | UnsetType = UNSET
    processed_count: int | UnsetType = UNSET
    remaining_queue: tuple[str, ...] | UnsetType = UNSET
    rename_map: dict[str, str] | UnsetType = UNSET
    last_error: str | UnsetType = UNSET
    recovery_instruction: str | UnsetType = UNSET
    next_action: str | UnsetType = UNSET


TreeAction = Literal["create", "list", "update", "complete", "delete", "connect", "disconnect", "validate"]
TreeStatus = Literal["", "pending", "in_progress", "completed", "blocked", "failed", "skipped"]


class NewTask(Struct, frozen=True, forbid_unknown_fields=True):
    """A task to create."""

    title: str
    task_id: str = ""
    depends_on: tuple[str, ...] = ()
    parent: str = ""
    notes: str = ""


class ManageTasks(Struct, frozen=True):
    action: TreeAction
    task_id: str = ""
    title: str = ""
    status: TreeStatus = ""
    notes: str = ""
    result: str = ""
    depends_on: tuple[str, ...] = ()
    parent: str = ""
    tasks: tuple[NewTask, ...] = ()


Does = Callable[["Store", Any, ToolContext], Awaitable[ToolOutput]]


def planning_tools(store: Callable[[], Store], *, todos: bool) -> Iterator[Tool]:
    """Yield all tools of planning."""
    if todos:
        yield _tool(store, "todo_add", "Note something to do.", TodoAdd, "todos:add")
        yield _tool(store, "todo_complete", "Tick off a todo.", TodoComplete, "todos:complete")
        yield _tool(
            store,
            "todo_update",
            "status: pending, in_progress, completed, blocked.",
            TodoUpdate,
            "todos:update",
        )
        yield _tool(store, "todo_list", "Show the todos.", NoArgs, "todos:show")
    yield _tool(store, "plan_complete_step", "Tick off a step of the approved plan.", StepDone, "steps:complete")
    yield _tool(
        store,
        "task_state_update",
        "Keep where a batch over many items stands. completion_gate (processed == total) must hold before you may end.",
        StateUpdate,
        "batch:update",
    )
    yield _tool(store, "task_state_get", "Show where the batch stands.", NoArgs, "batch:show")
    yield _tool(store, "task_reconcile", "Check the batch against the files.", NoArgs, "batch:reconcile")
    yield _tool(
        store,
        "manage_tasks",
        "Tasks with dependencies. action: create (one, or tasks=[{task_id, title, depends_on, parent}]), "
        "list (in order), update (status), complete (result), delete, connect or disconnect (depends_on), validate.",
        ManageTasks,
        "tree:manage",
    )


def _tool(store: Callable[[], Store], name: str, description: str, arguments: type[Struct], place: str) -> Tool:
    # They change only the session's own record, so the gate takes them for reading tools.
    return Tool(name, description, arguments, "read", _late(store, place), deferred=True)


def _late(store: Callable[[], Store], place: str) -> Run:
    module, _, name = place.partition(":")

    async def run(arguments: Any, ctx: ToolContext) -> ToolOutput:
        does: Does = getattr(importlib.import_module(f"lmagent.planning.{module}"), name)
        return await does(store(), arguments, ctx)

    return run
