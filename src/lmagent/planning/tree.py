"""Tree: tasks with parts and dependencies, which can only be done in an order that makes sense."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from graphlib import CycleError, TopologicalSorter

from msgspec.structs import replace

from lmagent.core.errors import ToolError
from lmagent.core.events import TasksChanged
from lmagent.core.plurals import plural
from lmagent.core.tool import ToolContext, ToolOutput
from lmagent.core.work import Task, TaskStatus
from lmagent.engine import worktext
from lmagent.engine.work import WorkState
from lmagent.planning.tasks import Store, changed, find, fresh, next_of, require_few, waits_for, worded
from lmagent.planning.tools import ManageTasks, NewTask

MOST_AT_ONCE = 100
SHOWN_FAULTS = 5
LONGEST_ID = 64

NOTHING = "Nothing was changed."


async def manage(store: Store, arguments: ManageTasks, ctx: ToolContext) -> ToolOutput:
    if arguments.action == "list":
        return ToolOutput(_listed(store.work(ctx)))
    if arguments.action == "validate":
        return ToolOutput(_validated(store.work(ctx)))
    changes: dict[str, Callable[[WorkState, ManageTasks], TasksChanged]] = {
        "create": _create,
        "update": _update,
        "complete": _complete,
        "delete": _delete,
        "connect": _connect,
        "disconnect": _disconnect,
    }
    return await store.change(ctx, lambda work: changes[arguments.action](work, arguments))


def _tree(work: WorkState) -> dict[str, Task]:
    return {id: task for id, task in work.tasks.items() if task.kind == "task"}


def _create(work: WorkState, arguments: ManageTasks) -> TasksChanged:
    wanted = arguments.tasks
    if arguments.title or not wanted:
        one = NewTask(arguments.title, arguments.task_id, arguments.depends_on, arguments.parent, notes=arguments.notes)
        wanted = (one, *wanted)
    if len(wanted) > MOST_AT_ONCE:
        raise ToolError(f"{len(wanted)} tasks are too many for one call, at most {MOST_AT_ONCE}. {NOTHING}")
    require_few(work, len(wanted))
    made: dict[str, Task] = {}
    for new in wanted:
        known = WorkState(tasks={**work.tasks, **made})
        id = new.task_id.strip() or fresh(known, "task")
        if id in known.tasks:
            raise ToolError(f"There is a task {id} already, or it is given twice. {NOTHING}")
        if len(id) > LONGEST_ID or any(char.isspace() or char == "," for char in id):
            raise ToolError(f"{id[:80]!r} is no id: at most {LONGEST_ID} characters, no blank, no comma. {NOTHING}")
        title, notes = worded(new.title, "title"), worded(new.notes, "notes", empty=True)
        depends = tuple(dict.fromkeys(new.depends_on))
        made[id] = Task(id, "task", title, notes=notes, depends_on=depends, parent=new.parent)
    _check({**_tree(work), **made})
    return TasksChanged(items=tuple(made.values()))


def _update(work: WorkState, arguments: ManageTasks) -> TasksChanged:
    task = find(work, arguments.task_id, "task")
    if not (arguments.title or arguments.notes or arguments.status or arguments.result or arguments.parent):
        raise ToolError(f"Give a title, status, notes, result or parent. {NOTHING}")
    after = replace(
        task,
        title=worded(arguments.title, "title", empty=True) or task.title,
        notes=worded(arguments.notes, "notes", empty=True) or task.notes,
        result=worded(arguments.result, "result", empty=True) or task.result,
        parent=arguments.parent or task.parent,
    )
    if arguments.parent:
        _check({**_tree(work), task.id: after})
    return _to(work, task, after, arguments.status or task.status)


def _complete(work: WorkState, arguments: ManageTasks) -> TasksChanged:
    task = find(work, arguments.task_id, "task")
    result = worded(arguments.result or arguments.notes, "result", empty=True) or task.result
    return _to(work, task, replace(task, result=result), "completed")


def _to(work: WorkState, before: Task, after: Task, status: TaskStatus) -> TasksChanged:
    """Give a task a status. Raises ToolError if another task comes first."""
    moves = status != before.status
    if moves and status in ("in_progress", "completed") and (waits := waits_for(work, after)):
        raise ToolError(f"{after.id} comes after {', '.join(waits)}, not done yet. {NOTHING}")
    parts = [task.id for task in work.tasks.values() if task.parent == after.id and task.is_open]
    if moves and status == "completed" and parts:
        raise ToolError(f"{after.id} has open parts: {', '.join(parts[:20])}. {NOTHING}")
    return changed(before, replace(after, status=status))


def _delete(work: WorkState, arguments: ManageTasks) -> TasksChanged:
    task = find(work, arguments.task_id, "task")
    users = [other.id for other in work.tasks.values() if task.id in (*other.depends_on, other.parent)]
    if users:
        raise ToolError(
            f"{', '.join(users[:20])} depend on {task.id} or are part of it: disconnect or delete them first. {NOTHING}"
        )
    return TasksChanged(removed=(task.id,))


def _connect(work: WorkState, arguments: ManageTasks) -> TasksChanged:
    task = find(work, arguments.task_id, "task")
    if not arguments.depends_on:
        raise ToolError(f"Give depends_on. {NOTHING}")
    after = replace(task, depends_on=tuple(dict.fromkeys((*task.depends_on, *arguments.depends_on))))
    _check({**_tree(work), task.id: after})
    return changed(task, after)


def _disconnect(work: WorkState, arguments: ManageTasks) -> TasksChanged:
    task = find(work, arguments.task_id, "task")
    unknown = [id for id in arguments.depends_on if id not in task.depends_on]
    if unknown or not arguments.depends_on:
        has = ", ".join(task.depends_on) or "nothing"
        raise ToolError(f"{task.id} depends on {has}, not on {', '.join(unknown) or 'nothing given'}. {NOTHING}")
    left = tuple(id for id in task.depends_on if id not in arguments.depends_on)
    return TasksChanged(items=(replace(task, depends_on=left),))


def _check(tasks: Mapping[str, Task]) -> None:
    """Refuse tasks that can never be done: something is missing, or runs in a circle."""
    if found := _faults(tasks):
        more = f" (and {len(found) - SHOWN_FAULTS} more)" if len(found) > SHOWN_FAULTS else ""
        raise ToolError(f"{'; '.join(found[:SHOWN_FAULTS])}{more}. {NOTHING}")


def _faults(tasks: Mapping[str, Task]) -> list[str]:
    needs = {id: task.depends_on for id, task in tasks.items()}
    parents = {id: (task.parent,) if task.parent else () for id, task in tasks.items()}
    # A part must not wait for the whole, which is only done when all its parts are.
    whole = {id: (*needs[id], *(part for part, of in parents.items() if id in of)) for id in tasks}
    found = faults(needs)
    found += [fault.replace("depends on", "is part of") for fault in faults(parents)]
    return found or faults(whole)


def _listed(work: WorkState) -> str:
    tasks, delegated = _tree(work), worktext.delegated_lines(work)
    if not tasks:
        return "\n".join(["There are no tasks of this list.", *delegated] if delegated else ["There are no tasks."])
    lines = [f"{worktext.counted(list(tasks.values()))} done. In the order in which they can be done:"]
    for task in _in_order(tasks):
        ready = " ready" if task.is_open and not waits_for(work, task) else ""
        lines.append(f"{worktext.row(task)}{ready}")
    return "\n".join([*lines, *delegated])


def _in_order(tasks: Mapping[str, Task]) -> Sequence[Task]:
    order = ordered({id: task.depends_on for id, task in tasks.items()})
    return [tasks[id] for id in dict.fromkeys((*order, *tasks))]


def _validated(work: WorkState) -> str:
    tasks = _tree(work)
    if found := _faults(tasks):
        return "\n".join(f"- {fault}" for fault in found[:20])
    return f"{plural(len(tasks), 'task')}, nothing is wrong. {next_of(work, tasks.values())}"


# --- dependencies -----------------------------------------------------------------------------------------------------


def faults(needs: Mapping[str, Sequence[str]]) -> list[str]:
    """List the faults of dependencies (for each id, the ids that come first); empty if they can be followed."""
    pairs = [(id, need) for id, wants in needs.items() for need in wants]
    found = [f"{id} depends on {need}, which does not exist" for id, need in pairs if need not in needs]
    found += [f"{id} depends on itself" for id, need in pairs if id == need]
    if not found and (circle := cycle(needs)):
        found.append(f"the dependencies run in a circle: {' → '.join(circle)}")
    return found


def ordered(needs: Mapping[str, Sequence[str]]) -> list[str]:
    """Sort the ids so that each comes after those it needs, otherwise as given; ids in a circle are left out."""
    sorter, place, order = TopologicalSorter(needs), {id: at for at, id in enumerate(needs)}, list[str]()
    with suppress(CycleError):
        sorter.prepare()
    while free := sorter.get_ready():
        order += sorted((id for id in free if id in place), key=lambda id: place[id])
        sorter.done(*free)
    return order


def cycle(needs: Mapping[str, Sequence[str]]) -> list[str]:
    """Return a circle, its first id again at its end; empty if no circle exists."""
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as circle:
        return circle.args[1][::-1]
    return []
