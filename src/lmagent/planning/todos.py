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
"""Open tasks of a session: every one of them stands in the prompt after a compaction."""

LONGEST = 2000
"""Characters of a title or a note."""


async def add(store: Store, arguments: TodoAdd, ctx: ToolContext) -> ToolOutput:
    """todo_add."""

    def build(work: WorkState) -> TasksChanged:
        room(work, 1)
        title = worded(arguments.description, "description")
        notes = worded(arguments.notes, "notes", empty=True)
        return TasksChanged(items=(Task(fresh(work, "todo"), "todo", title, notes=notes),))

    return await store.change(ctx, build)


async def complete(store: Store, arguments: TodoComplete, ctx: ToolContext) -> ToolOutput:
    """todo_complete."""

    def build(work: WorkState) -> TasksChanged:
        return changed(find(work, arguments.todo_id, "todo"), status="completed")

    return await store.change(ctx, build)


async def update(store: Store, arguments: TodoUpdate, ctx: ToolContext) -> ToolOutput:
    """todo_update."""

    def build(work: WorkState) -> TasksChanged:
        if not arguments.status and not arguments.notes:
            raise ToolError("Give a status or notes. Nothing was changed.")
        todo = find(work, arguments.todo_id, "todo")
        notes = worded(arguments.notes, "notes", empty=True) or todo.notes
        return changed(todo, status=arguments.status or todo.status, notes=notes)

    return await store.change(ctx, build)


async def show(store: Store, _: NoArgs, ctx: ToolContext) -> ToolOutput:
    """todo_list."""
    todos = [task for task in store.work(ctx).tasks.values() if task.kind == "todo"]
    if not todos:
        return ToolOutput("There are no todos.")
    return ToolOutput(f"{worktext.counted(todos)} done\n{worktext.rows(todos)}")


def find(work: WorkState, named: str | int, kind: TaskKind) -> Task:
    """The task of a kind that a model names; a bare number is taken for `todo3`.

    Raises:
        ToolError: there is none.
    """
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
    """An id that was never used in this store, as far as it still knows."""
    used = [int(id[len(PREFIX[kind]) :]) for id in work.tasks if id[len(PREFIX[kind]) :].isdecimal()]
    number = max(used, default=0) + 1
    while f"{PREFIX[kind]}{number}" in work.tasks:
        number += 1
    return f"{PREFIX[kind]}{number}"


def room(work: WorkState, more: int) -> None:
    """Refuse more open tasks than can always be kept in the prompt.

    Raises:
        ToolError: there would be too many.
    """
    opened = sum(task.is_open for task in work.tasks.values())
    if opened + more > MOST_OPEN:
        raise ToolError(
            f"{plural(opened, 'open task')} already: {more} more would be over {MOST_OPEN}. Nothing was changed. "
            "Keep a long list in a file, and its progress with task_state_update."
        )


def worded(text: str, what: str, *, empty: bool = False) -> str:
    """A text of the model, if it is one.

    Raises:
        ToolError: it is empty, or too long.
    """
    if not text.strip() and not empty:
        raise ToolError(f"{what} is empty. Nothing was changed.")
    if len(text) > LONGEST:
        raise ToolError(f"{what} has {len(text):,} characters, at most {LONGEST:,} are kept. Nothing was changed.")
    return text.strip()


def changed(task: Task, *, status: TaskStatus, notes: str | None = None) -> TasksChanged:
    """The change that gives a task a status; none where it is so already."""
    after = replace(task, status=status, notes=task.notes if notes is None else notes)
    return TasksChanged(items=(after,) if after != task else ())
