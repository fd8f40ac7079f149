"""Todos: the model's own list."""

from __future__ import annotations

from msgspec.structs import replace

from lmagent.core.errors import ToolError
from lmagent.core.events import TasksChanged
from lmagent.core.plurals import plural
from lmagent.core.tool import ToolContext, ToolOutput
from lmagent.core.work import Task, TaskKind, TaskStatus
from lmagent.engine import worktext
from lmagent.engine.work import WorkState
from lmagent.planning.store import Store
from lmagent.planning.tools import NoArgs, TodoAdd, TodoComplete, TodoUpdate

MOST_OPEN = 300
"""Open tasks of a session: the prompt repeats each of them after a compaction."""

LONGEST = 2000
"""Characters of a title or a note."""


async def add(store: Store, arguments: TodoAdd, ctx: ToolContext) -> ToolOutput:
    def build(work: WorkState) -> TasksChanged:
        room(work, 1)
        title = worded(arguments.description, "description")
        notes = worded(arguments.notes, "notes", empty=True)
        return TasksChanged(items=(Task(fresh(work, "todo"), "todo", title, notes=notes),))

    return await store.change(ctx, build)


async def complete(store: Store, arguments: TodoComplete, ctx: ToolContext) -> ToolOutput:
    def build(work: WorkState) -> TasksChanged:
        return changed(find(work, arguments.todo_id, "todo"), status="completed")

    return await store.change(ctx, build)


async def update(store: Store, arguments: TodoUpdate, ctx: ToolContext) -> ToolOutput:
    def build(work: WorkState) -> TasksChanged:
        if not arguments.status and not arguments.notes:
            raise ToolError("Give a status or notes. Nothing was changed.")
        todo = find(work, arguments.todo_id, "todo")
        notes = worded(arguments.notes, "notes", empty=True) or todo.notes
        return changed(todo, status=arguments.status or todo.status, notes=notes)

    return await store.change(ctx, build)


async def show(store: Store, _: NoArgs, ctx: ToolContext) -> ToolOutput:
    todos = [task for task in store.work(ctx).tasks.values() if task.kind == "todo"]
    if not todos:
        return ToolOutput("There are no todos.")
    return ToolOutput(f"{worktext.counted(todos)} done\n{worktext.rows(todos)}")


def find(work: WorkState, named: str | int, kind: TaskKind) -> Task:
    """Find the task that a model names; a bare number means `todo3`. Raises ToolError if no task has this id."""
    id = str(named).strip()
    task = work.tasks.get(id) or (work.tasks.get(f"{PREFIX[kind]}{id}") if id.isdigit() else None)
    if task is not None and task.kind == kind:
        return task
    known = [other.id for other in work.tasks.values() if other.kind == kind]
    listed = f"; these exist: {', '.join(known[:40])}" if known else ", nor any other"
    raise ToolError(f"There is no {WORDS[kind]} {id!r}{listed}. Nothing was changed.")


PREFIX: dict[TaskKind, str] = {"todo": "todo", "task": "t", "step": "s"}
WORDS: dict[TaskKind, str] = {"todo": "todo", "task": "task", "step": "step of an approved plan"}


def fresh(work: WorkState, kind: TaskKind) -> str:
    """Return an id that this store has never used, as far as it still knows."""
    used = [int(id[len(PREFIX[kind]) :]) for id in work.tasks if id[len(PREFIX[kind]) :].isdecimal()]
    number = max(used, default=0) + 1
    while f"{PREFIX[kind]}{number}" in work.tasks:
        number += 1
    return f"{PREFIX[kind]}{number}"


def room(work: WorkState, more: int) -> None:
    """Refuse more open tasks than the prompt can always hold."""
    opened = sum(task.is_open for task in work.tasks.values())
    if opened + more > MOST_OPEN:
        raise ToolError(
            f"{plural(opened, 'open task')} already: {more} more would be over {MOST_OPEN}. Nothing was changed. "
            "Keep a long list in a file, and its progress with task_state_update."
        )


def worded(text: str, what: str, *, empty: bool = False) -> str:
    """Return the model's text; raises ToolError if it is empty or too long."""
    if not text.strip() and not empty:
        raise ToolError(f"{what} is empty. Nothing was changed.")
    if len(text) > LONGEST:
        raise ToolError(f"{what} has {len(text):,} characters, at most {LONGEST:,} are kept. Nothing was changed.")
    return text.strip()


def changed(task: Task, *, status: TaskStatus, notes: str | None = None) -> TasksChanged:
    """Build the change that gives a task a status; empty if it has it already."""
    after = replace(task, status=status, notes=task.notes if notes is None else notes)
    return TasksChanged(items=(after,) if after != task else ())
