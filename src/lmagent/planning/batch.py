"""Batch: the task state, the progress of a long run over many items, and its condition for the end, the gate.

Whatever its text, a gate is met when the queue is empty and as many items are processed as there are in total.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET, to_builtins
from msgspec.structs import asdict, replace

from lmagent.core.errors import ToolError
from lmagent.core.events import TasksChanged
from lmagent.core.tool import ToolContext, ToolOutput
from lmagent.core.work import TaskState
from lmagent.engine import worktext
from lmagent.engine.work import WorkState
from lmagent.planning.tasks import Store
from lmagent.planning.tools import NoArgs, StateUpdate

# Items of the queue, and characters of the whole state: the prompt repeats it after every compaction.
MOST_QUEUED, LONGEST = 500, 12_000


async def update(store: Store, arguments: StateUpdate, ctx: ToolContext) -> ToolOutput:
    def build(work: WorkState) -> TasksChanged:
        given = {name: value for name, value in asdict(arguments).items() if value is not UNSET}
        if not given:
            raise ToolError("Nothing was given, so nothing was changed.")
        return _changed(work, replace(work.state, **given))

    return await store.change(ctx, build)


async def show(store: Store, _: NoArgs, ctx: ToolContext) -> ToolOutput:
    state = store.work(ctx).state
    lines = worktext.state_lines(state)
    text = "\n".join([*lines, standing(state)]) if lines else "There is no task state."
    return ToolOutput(text, {"task_state": to_builtins(state)})


async def reconcile(store: Store, _: NoArgs, ctx: ToolContext) -> ToolOutput:
    found: list[str] = []

    def build(work: WorkState) -> TasksChanged:
        found.clear()
        if work.state == TaskState():
            raise ToolError("There is no task state to compare; task_state_update makes one.")
        return _changed(work, replace(work.state, remaining_queue=_queue(work.state, ctx, found)))

    output = await store.change(ctx, build)
    state = store.work(ctx).state
    found += _missing(state, ctx)
    total = state.processed_count + len(state.remaining_queue)
    if state.total_count is not None and total != state.total_count:
        found.append(
            f"{state.processed_count} processed and {len(state.remaining_queue)} in the queue make {total}, "
            f"but total_count is {state.total_count}"
        )
    lines = [f"- {line}" for line in found] or ["Nothing contradicts the files."]
    return ToolOutput("\n".join([output.content, *lines]))


def _queue(state: TaskState, ctx: ToolContext, found: list[str]) -> tuple[str, ...]:
    """Return the queue without duplicates, with the present names of renamed files."""
    queue: dict[str, None] = {}
    for item in state.remaining_queue:
        name = state.rename_map.get(item, item)
        if name != item and _exists(ctx, name) and not _exists(ctx, item):
            found.append(f"{item} is called {name} now; the queue was corrected")
        else:
            name = item
        if name in queue:
            found.append(f"{name} was in the queue twice; one entry is left")
        queue[name] = None
    return tuple(queue)


def _missing(state: TaskState, ctx: ToolContext) -> list[str]:
    """Return names that look like paths of files that do not exist, and renames that were not done."""
    gone = [item for item in state.remaining_queue if _is_path(item) and not _exists(ctx, item)]
    lines = [f"in the queue, and there is no such file: {_listed(gone)}"] if gone else []
    undone = [old for old, new in state.rename_map.items() if _exists(ctx, old) and not _exists(ctx, new)]
    return [*lines, f"to be renamed, and not done yet: {_listed(undone)}"] if undone else lines


def _listed(names: Sequence[str], most: int = 20) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _is_path(item: str) -> bool:
    return "/" in item or ("." in item[1:] and " " not in item)


def _exists(ctx: ToolContext, name: str) -> bool:
    """Return whether a file of this name exists in the workspace and this call may know of it."""
    root = ctx.workspace.resolve()
    try:
        path = (root / name).resolve()
        return path.is_relative_to(root) and not ctx.hidden(str(path.relative_to(root))) and path.exists()
    except (OSError, ValueError):  # no file could have this name
        return False


def _changed(work: WorkState, state: TaskState) -> TasksChanged:
    """Build the change to a state. Raise ToolError if the state contradicts itself, or is too long to keep."""
    if state.processed_count < 0 or (state.total_count is not None and state.total_count < 0):
        raise ToolError("A count is below 0. Nothing was changed.")
    if state.total_count is not None and state.processed_count > state.total_count:
        raise ToolError(
            f"processed_count {state.processed_count} is over total_count {state.total_count}. Nothing was changed."
        )
    size = sum(len(str(value)) for value in asdict(state).values())
    if len(state.remaining_queue) > MOST_QUEUED or size > LONGEST:
        raise ToolError(
            f"The state is too long: at most {MOST_QUEUED} items in the queue and {LONGEST:,} characters in all. "
            "Nothing was changed. Keep the list in a file, and its path in next_action."
        )
    return TasksChanged(state=state if state != work.state else None)


# --- the gate ---------------------------------------------------------------------------------------------------------


def unmet(state: TaskState) -> str:
    """Return why the gate is not met; empty if it is met or absent."""
    if not state.completion_gate.strip():
        return ""
    if state.remaining_queue:
        return f"{len(state.remaining_queue)} left in the queue: {_listed(state.remaining_queue, 10)}"
    if state.total_count is not None and state.processed_count < state.total_count:
        return f"{state.processed_count} of {state.total_count} are processed"
    return ""


def standing(state: TaskState) -> str:
    total = "?" if state.total_count is None else state.total_count
    counted = f"{state.processed_count} of {total} processed, {len(state.remaining_queue)} in the queue."
    if not state.completion_gate.strip():
        return counted
    return f"{counted} The gate is {'not met' if unmet(state) else 'met'}."
