"""Work as text: tasks, plan and task state for the model, in the ledger, in results and in notes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lmagent.core.work import Plan, Task, TaskKind, TaskState
from lmagent.engine.work import WorkState

TITLES: dict[TaskKind, str] = {"step": "Open steps of the plan", "task": "Open tasks", "todo": "Open todos"}

SHORT, SHORTEST = 160, 60
"""Caps on the characters of a task's title in a short record and in a very short one."""


DELEGATED = 20
"""Cap on the shown tasks of sub-agents."""


def row(task: Task, width: int = 0) -> str:
    """Return a task in one line; `width` caps the title and leaves out the rest."""
    head = f"- {task.id} [{task.status}] {_cut(task.title, width)}"
    more = [f"after {', '.join(task.depends_on)}"] if task.depends_on else []
    if task.parent:
        more.append(f"part of {task.parent}")
    if not width:
        words = {"check": task.verification, "risk": task.risk, "notes": task.notes, "result": task.result}
        more += [f"{name}: {_line(text)}" for name, text in words.items() if text]
    return f"{head} ({'; '.join(more)})" if more else head


def rows(tasks: Iterable[Task], width: int = 0) -> str:
    return "\n".join(row(task, width) for task in tasks)


def state_lines(state: TaskState) -> list[str]:
    """Return the known fields of the task state, one per line."""
    if state == TaskState():
        return []
    total = "an unknown total" if state.total_count is None else state.total_count
    words = {
        "objective": state.objective,
        "completion_gate": state.completion_gate,
        "processed": f"{state.processed_count} of {total}",
        "remaining_queue": ", ".join(state.remaining_queue),
        "rename_map": ", ".join(f"{old} → {new}" for old, new in state.rename_map.items()),
        "last_error": state.last_error,
        "recovery_instruction": state.recovery_instruction,
        "next_action": state.next_action,
    }
    return [f"- {name}: {_line(text)}" for name, text in words.items() if text]


def delegated_lines(work: WorkState) -> list[str]:
    """Return the latest tasks of sub-agents, one per line: their reports alone settle them."""
    if not work.children:
        return []
    lines = [f"Given to sub-agents ({len(work.results)} of {len(work.children)} reported; their reports settle them):"]
    for key, started in list(work.children.items())[-DELEGATED:]:
        result = work.results.get(key)
        said = f"; {_cut(result.summary, SHORT)}" if result is not None and result.summary else ""
        head = f"- {started.task or started.child} [{result.status if result is not None else 'in_progress'}]"
        lines.append(f"{head} {_cut(started.brief.objective, SHORT)} (sub-agent {started.child}{said})")
    if len(work.children) > DELEGATED:
        lines.append(f"- and {len(work.children) - DELEGATED} before them")
    return lines


def plan_lines(plan: Plan) -> list[str]:
    lines = [f"Approved plan: {_line(plan.title)}. Goal: {_line(plan.goal)}"]
    return [*lines, f"Risks: {'; '.join(map(_line, plan.risk_areas))}"] if plan.risk_areas else lines


def record(work: WorkState, size: int) -> str:
    """Return all open work, and the progress of the rest, in `size` bytes if that is possible.

    Nothing open is left out: long titles are shortened instead.
    """
    text = ""
    for width in (0, SHORT, SHORTEST):
        text = "\n".join(_parts(work, width))
        if len(text.encode("utf-8", "replace")) <= size:
            break
    return text


def least(work: WorkState) -> int:
    """Return the bytes of the shortest record of all open work, which every compaction keeps."""
    return len(record(work, 0).encode("utf-8", "replace"))


def _parts(work: WorkState, width: int) -> list[str]:
    tasks = list(work.tasks.values())
    parts = plan_lines(work.plan) if work.plan is not None and any(task.kind == "step" for task in tasks) else []
    for kind, title in TITLES.items():
        mine = [task for task in tasks if task.kind == kind]
        opened = [task for task in mine if task.is_open]
        if opened:
            parts += [f"{title} ({len(opened)} of {len(mine)}):", rows(opened, width)]
        elif mine:
            parts.append(f"{title}: none, {len(mine)} are over.")
    if lines := state_lines(work.state):
        parts += ["Task state:", *lines]
    return parts


def counted(tasks: Sequence[Task]) -> str:
    """Return how many are done: `2 of 5`."""
    return f"{sum(not task.is_open for task in tasks)} of {len(tasks)}"


def _line(text: str) -> str:
    return " ".join(text.split())


def _cut(text: str, width: int) -> str:
    line = _line(text)
    return line if not width or len(line) <= width else f"{line[: width - 1]}…"
