"""Tasks: the one way in which a model's call changes the session's tasks; its todos, and the steps of its plan."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

import anyio
from msgspec.structs import replace

from lmagent.core.errors import ToolError
from lmagent.core.events import TasksChanged
from lmagent.core.plurals import plural
from lmagent.core.tool import ToolContext, ToolOutput
from lmagent.core.work import Task, TaskKind
from lmagent.engine import worktext
from lmagent.engine.session import Session
from lmagent.engine.work import WorkState
from lmagent.planning.tools import NoArgs, StepDone, TodoAdd, TodoComplete, TodoUpdate

ROWS = 30  # changed tasks that a result shows; the model has named the others itself

# The part of the window, up to its trigger, that open tasks and the task state may take in their shortest form.
WINDOW_SHARE = 0.4

MOST_OPEN = 300  # open tasks of a session: the prompt repeats each of them after a compaction
LONGEST = 2000  # characters of a title or a note

PREFIX: dict[TaskKind, str] = {"todo": "todo", "task": "t", "step": "s"}
WORDS: dict[TaskKind, str] = {"todo": "todo", "task": "task", "step": "step of an approved plan"}

Build = Callable[[WorkState], TasksChanged]  # builds a change; raises ToolError to refuse it, and then nothing changes


class Store:
    """The tasks of the sessions that are open here; `session` finds one by id."""

    def __init__(self, session: Callable[[str], Session]) -> None:
        self._session = session
        self._locks: defaultdict[str, anyio.Lock] = defaultdict(anyio.Lock)

    def work(self, ctx: ToolContext) -> WorkState:
        """Return the work of a call's session. Raise ToolError if a user calls a single tool, without a session."""
        return self._session(ctx.session).state.work

    async def change(self, ctx: ToolContext, build: Build) -> ToolOutput:
        """Record one change, whole or not at all; calls of one reply change one after the other."""
        session = self._session(ctx.session)
        async with self._locks[ctx.session]:
            work = session.state.work
            done = work.calls.get(ctx.call)
            if done is None:  # else a crash came between the change and its result, and this is the same call again
                done = replace(build(work), by="model", call=ctx.call)
                _require_room(session, done)
                if done.items or done.removed or done.state is not None:
                    await session.record(done)
        return ToolOutput(_told(done))


def _require_room(session: Session, change: TasksChanged) -> None:
    work = session.state.work
    tasks = {**work.tasks, **{task.id: task for task in change.items}}
    after = WorkState(tasks=tasks, state=change.state or work.state, plan=work.plan)
    if (why := too_much(session, after)) and worktext.least(after) > worktext.least(work):
        raise ToolError(f"{why} Nothing was changed. Keep long lists in a file, or take several tasks together.")


def too_much(session: Session, work: WorkState) -> str:
    """Return why the window has no room for so much open work next to the conversation; empty if it has."""
    size, limit = session.state.tokens(worktext.least(work)), int(session.window.trigger * WINDOW_SHARE)
    if size <= limit:
        return ""
    return f"All that is open would take {size:,} tokens, of a window that has room for {limit:,}."


def _told(change: TasksChanged) -> str:
    lines = [worktext.row(task, worktext.SHORT) for task in change.items[:ROWS]]
    if len(change.items) > ROWS:
        lines.append(f"and {len(change.items) - ROWS} more, up to {change.items[-1].id}")
    if change.removed:
        lines.append(f"gone: {', '.join(change.removed)}")
    if change.state is not None:
        from lmagent.planning.batch import standing

        lines.append(f"Task state kept. {standing(change.state)}")
    return "\n".join(lines) or "Nothing to change: it is so already."


# --- todos ------------------------------------------------------------------------------------------------------------


async def add_todo(store: Store, arguments: TodoAdd, ctx: ToolContext) -> ToolOutput:
    def build(work: WorkState) -> TasksChanged:
        require_few(work, 1)
        title = worded(arguments.description, "description")
        notes = worded(arguments.notes, "notes", empty=True)
        return TasksChanged(items=(Task(fresh(work, "todo"), "todo", title, notes=notes),))

    return await store.change(ctx, build)


async def complete_todo(store: Store, arguments: TodoComplete, ctx: ToolContext) -> ToolOutput:
    def build(work: WorkState) -> TasksChanged:
        todo = find(work, arguments.todo_id, "todo")
        return changed(todo, replace(todo, status="completed"))

    return await store.change(ctx, build)


async def update_todo(store: Store, arguments: TodoUpdate, ctx: ToolContext) -> ToolOutput:
    def build(work: WorkState) -> TasksChanged:
        if not arguments.status and not arguments.notes:
            raise ToolError("Give a status or notes. Nothing was changed.")
        todo = find(work, arguments.todo_id, "todo")
        notes = worded(arguments.notes, "notes", empty=True) or todo.notes
        return changed(todo, replace(todo, status=arguments.status or todo.status, notes=notes))

    return await store.change(ctx, build)


async def show_todos(store: Store, _: NoArgs, ctx: ToolContext) -> ToolOutput:
    todos = [task for task in store.work(ctx).tasks.values() if task.kind == "todo"]
    return ToolOutput(f"{worktext.counted(todos)} done\n{worktext.rows(todos)}" if todos else "There are no todos.")


# --- steps ------------------------------------------------------------------------------------------------------------


async def complete_step(store: Store, arguments: StepDone, ctx: ToolContext) -> ToolOutput:
    def build(work: WorkState) -> TasksChanged:
        step = find(work, arguments.step_id, "step")
        notes = worded(arguments.verification_notes, "verification_notes")
        if step.status == "completed":
            return TasksChanged()
        if waits := waits_for(work, step):
            raise ToolError(f"{step.id} comes after {', '.join(waits)}, not done yet. Nothing was changed.")
        return TasksChanged(items=(replace(step, status="completed", result=notes),))

    output, work = await store.change(ctx, build), store.work(ctx)
    following = next_of(work, (task for task in work.tasks.values() if task.kind == "step"))
    return ToolOutput(f"{output.content}\n{following}")


def waits_for(work: WorkState, task: Task) -> list[str]:
    """Return the dependencies that are not completed; a task that was removed blocks nothing."""
    first = (work.tasks[id] for id in task.depends_on if id in work.tasks)
    return [other.id for other in first if other.status not in ("completed", "skipped")]


def next_of(work: WorkState, tasks: Iterable[Task]) -> str:
    opened = [task for task in tasks if task.is_open]
    if not opened:
        return "All are done."
    ready = [task.id for task in opened if not waits_for(work, task)]
    return f"{len(opened)} open; next: {', '.join(ready[:5])}" if ready else f"{len(opened)} open; none can begin."


# --- all kinds --------------------------------------------------------------------------------------------------------


def find(work: WorkState, named: str | int, kind: TaskKind) -> Task:
    """Find the task that a model names; a bare number means `todo3`."""
    id = str(named).strip()
    task = work.tasks.get(id) or (work.tasks.get(f"{PREFIX[kind]}{id}") if id.isdigit() else None)
    if task is not None and task.kind == kind:
        return task
    known = [other.id for other in work.tasks.values() if other.kind == kind]
    listed = f"; these exist: {', '.join(known[:40])}" if known else ", nor any other"
    raise ToolError(f"There is no {WORDS[kind]} {id!r}{listed}. Nothing was changed.")


def fresh(work: WorkState, kind: TaskKind) -> str:
    """Return an id above all ids of this kind."""
    prefix = PREFIX[kind]
    used = [int(number) for id in work.tasks if (number := id.removeprefix(prefix)) != id and number.isdecimal()]
    return f"{prefix}{max(used, default=0) + 1}"


def require_few(work: WorkState, more: int) -> None:
    """Refuse more open tasks than the prompt can always hold."""
    opened = sum(task.is_open for task in work.tasks.values())
    if opened + more > MOST_OPEN:
        raise ToolError(
            f"{plural(opened, 'open task')} already: {more} more would be over {MOST_OPEN}. Nothing was changed. "
            "Keep a long list in a file, and its progress with task_state_update."
        )


def worded(text: str, what: str, *, empty: bool = False) -> str:
    """Return the model's text; raise ToolError if it is empty or too long."""
    if not text.strip() and not empty:
        raise ToolError(f"{what} is empty. Nothing was changed.")
    if len(text) > LONGEST:
        raise ToolError(f"{what} has {len(text):,} characters, at most {LONGEST:,} are kept. Nothing was changed.")
    return text.strip()


def changed(before: Task, after: Task) -> TasksChanged:
    return TasksChanged(items=(after,) if after != before else ())
