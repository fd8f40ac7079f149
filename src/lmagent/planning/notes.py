"""Notes: the tail's notes to the model about its tasks, its mode of work and its budget, when they have changed."""

from __future__ import annotations

from collections.abc import Iterable

from lmagent.core.tool import Tool
from lmagent.core.work import TaskState
from lmagent.engine import budget
from lmagent.engine.state import SessionState
from lmagent.engine.toolbox import CATALOGUE_HEAD, catalogue_line

ROUNDS = 10  # rounds of calls in which a model may look around before it plans
WARN_AT = 0.8  # share of a budget after which the model gets a warning
LONGEST = 8000  # bytes of tasks after which the note shortens them

PLAN = (
    "<work>\nPlan mode: change nothing; only tools that read are allowed. Look around in at most "
    f"{ROUNDS} rounds of calls, then answer with one JSON object:\n"
    '{"title": "…", "goal": "…", "risk_areas": ["…"], "steps": [{"id": "1", "description": "…", '
    '"verification": "how to see that it is done", "risk": "…", "dependencies": ["ids of steps that come first"]}]}\n'
    "At most 30 steps. The user decides on the plan before anything is done.\n</work>"
)

WAITS = (
    "<plan>\nYour plan waits for the user's decision. Answer what they ask in words; only if they want another plan, "
    "answer with all of it as JSON.\n</plan>"
)

BOUNDED = "<work>\nShort work: only a few model calls a turn. Do what matters most.\n</work>"
NORMAL = "<work>\nOrdinary work again: what the permissions allow is allowed.\n</work>"


def work_note(state: SessionState) -> str:
    """Describe the session's mode of work; empty as long as it was never anything but ordinary."""
    work = state.work
    if work.mode == "plan":
        return PLAN
    if work.mode == "bounded":
        return BOUNDED
    if work.mode == "deep":
        return (
            "<work>\nDeep work: take the time that it needs, without asking back. Keep todos or the plan's steps up to "
            f"date; the work is not over while one is open. {_budget(state)}\n</work>"
        )
    return NORMAL if "work" in state.notes else ""


def plan_note(state: SessionState) -> str:
    """Say how to answer while a plan of an earlier turn waits."""
    proposal = state.work.proposal
    asked = proposal is not None and proposal.turn != state.turn and state.turn_open
    return WAITS if asked and state.work.mode == "plan" else ""


def _budget(state: SessionState) -> str:
    total = state.work.budget
    parts = [f"{total.steps:,} model calls"] if total.steps is not None else []
    parts += [f"{total.tokens:,} tokens"] if total.tokens is not None else []
    return f"Budget: {', '.join(parts)}." if parts else ""


def budget_note(state: SessionState) -> str:
    total, used = state.work.budget, budget.used(state)
    pairs = ((used.steps or 0, total.steps), (used.tokens or 0, total.tokens))
    if max((spent / limit for spent, limit in pairs if limit is not None), default=0.0) < WARN_AT:
        # A warning about an earlier budget must not stay for ever; a sub-agent inherits its parent's notes.
        outdated = "budget" in state.notes and state.work.parent is None
        return f"<budget>\n{_budget(state) or 'There is no budget any more.'}\n</budget>" if outdated else ""
    return (
        f"<budget>\n{WARN_AT:.0%} of the budget for this work is used. {_budget(state)} "
        "Finish what matters most, and leave everything in a state from which others can continue.\n</budget>"
    )


STEPS = ("plan_complete_step",)
# Tools that most work does not need: the model learns of them once there is a plan, deep work or a batch.
BATCH = ("task_state_update", "task_state_get", "task_reconcile", "manage_tasks")


def tools_note(state: SessionState, tools: Iterable[Tool], *, small: bool) -> str:
    """List the tools for a plan, for deep work and for a batch, from the moment when they are of use.

    A `small` window has no room for the tools of a batch.
    """
    work, told = state.work, state.notes.get("work_tools", "")
    kinds = {task.kind for task in work.tasks.values()}
    batch = work.mode == "deep" or "task" in kinds or work.state != TaskState()
    wanted = {name for name in (*STEPS, *BATCH) if f"\n- {name}(" in told}
    wanted |= set(STEPS) if "step" in kinds else set()
    wanted |= set(BATCH) if batch and not small else set()
    if not wanted:
        return ""
    lines = [catalogue_line(tool) for tool in tools if tool.name in wanted]
    return "\n".join(("<work_tools>", CATALOGUE_HEAD, *lines, "</work_tools>"))


def tasks_note(state: SessionState) -> str:
    """List the changes to the model's tasks, by anyone but the model, since the last such note."""
    told = _told(state.notes.get("tasks", ""))
    told = told if told <= state.seq else 0  # an inherited note counts its parent's events
    news = [event for event in state.work.others if event.seq > told]
    if not news:
        return ""
    from lmagent.engine.worktext import SHORT, SHORTEST, rows, state_lines  # users rarely change the model's tasks

    touched = dict.fromkeys(task.id for event in news for task in event.items)
    tasks = [state.work.tasks[id] for id in touched if id in state.work.tasks]
    lines = next((text for width in (0, SHORT) if len(text := rows(tasks, width)) <= LONGEST), rows(tasks, SHORTEST))
    gone = dict.fromkeys(id for event in news for id in event.removed if id not in state.work.tasks)
    if gone:
        lines = f"{lines}\nGone: {', '.join(gone)}".lstrip("\n")
    if any(event.state is not None for event in news):
        lines = "\n".join([lines, "Task state:", *(state_lines(state.work.state) or ["cleared"])]).lstrip("\n")
    by = ", ".join(dict.fromkeys(event.by for event in news))
    return f"<tasks>\nChanged by others ({by}; event {news[-1].seq}):\n{lines}\n</tasks>"


def _told(note: str) -> int:
    number = note.partition("; event ")[2].partition(")")[0]
    return int(number) if number.isdecimal() else 0
