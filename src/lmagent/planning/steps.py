"""Steps of an approved plan."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from lmagent.core.errors import ToolError
from lmagent.core.events import TasksChanged
from lmagent.core.tool import ToolContext, ToolOutput
from lmagent.core.work import Task
from lmagent.engine.work import WorkState
from lmagent.planning.store import Store
from lmagent.planning.todos import find, worded
from lmagent.planning.tools import StepDone


async def complete(store: Store, arguments: StepDone, ctx: ToolContext) -> ToolOutput:
    def build(work: WorkState) -> TasksChanged:
        step = find(work, arguments.step_id, "step")
        notes = worded(arguments.verification_notes, "verification_notes")
        if step.status == "completed":
            return TasksChanged()
        if waits := waits_for(work, step):
            raise ToolError(f"{step.id} comes after {', '.join(waits)}, not done yet. Nothing was changed.")
        return TasksChanged(items=(replace(step, status="completed", result=notes),))

    output = await store.change(ctx, build)
    following = next_of(store.work(ctx), (task for task in store.work(ctx).tasks.values() if task.kind == "step"))
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
