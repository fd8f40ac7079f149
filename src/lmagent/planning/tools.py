"""The tools: descriptions and arguments for the model. The code of each is imported when it is called."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from msgspec import UNSET, Struct, UnsetType

from lmagent.core.tool import Tool, ToolContext, ToolOutput

if TYPE_CHECKING:
    from lmagent.planning.tasks import Store

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
    """Yield all tools of planning; `store` returns the one that they share, and `todos` adds the model's own list."""

    def tool(name: str, description: str, arguments: type[Struct], module: str, function: str) -> Tool:
        async def run(arguments: Any, ctx: ToolContext) -> ToolOutput:
            does: Does = getattr(import_module(f"lmagent.planning.{module}"), function)
            return await does(store(), arguments, ctx)

        # They change only the session's own record, so the gate takes them for reading tools.
        return Tool(name, description, arguments, "read", run, deferred=True, unlisted=("notes",))

    if todos:
        status = "status: pending, in_progress, completed, blocked."
        yield tool("todo_add", "Note something to do.", TodoAdd, "tasks", "add_todo")
        yield tool("todo_complete", "Tick off a todo.", TodoComplete, "tasks", "complete_todo")
        yield tool("todo_update", status, TodoUpdate, "tasks", "update_todo")
        yield tool("todo_list", "Show the todos.", NoArgs, "tasks", "show_todos")
    yield tool("plan_complete_step", "Tick off a step of the approved plan.", StepDone, "tasks", "complete_step")
    yield tool(
        "task_state_update",
        "Keep where a batch over many items stands. completion_gate (processed == total) must hold before you may end.",
        StateUpdate,
        "batch",
        "update",
    )
    yield tool("task_state_get", "Show where the batch stands.", NoArgs, "batch", "show")
    yield tool("task_reconcile", "Check the batch against the files.", NoArgs, "batch", "reconcile")
    yield tool(
        "manage_tasks",
        "Tasks with dependencies. action: create (one, or tasks=[{task_id, title, depends_on, parent}]), "
        "list (in order), update (status), complete (result), delete, connect or disconnect (depends_on), validate.",
        ManageTasks,
        "tree",
        "manage",
    )
