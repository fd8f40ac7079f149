"""Show: the project as text, for the model's note and for the user."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lmagent.core.notes import unclosing
from lmagent.notebook.record import Project, ProjectTask
from lmagent.tools.sanitize import one_line

NOTE = "project"
ROWS = 10  # tasks in a note
ROOM = 145  # bytes of the tasks in a note; the whole note has at most 600, about 150 tokens
GOAL, NAME, TITLE, ENTRY = 100, 26, 55, 42  # bytes of each in a note


def note_text(project: Project, others: Sequence[ProjectTask], entries: Iterable[str], warning: str) -> str:
    """Return the note; `others` are the open tasks that are not the session's own."""
    lines = [f"{_cut(project.name, NAME)}: {project.state}. Goal: {_cut(project.goal, GOAL)}"]
    lines += [warning] if warning else []
    rows, room = list[str](), ROOM
    for task in others[:ROWS]:
        row = f"- {_cut(task.id, 20)} {_cut(task.title, TITLE)}"
        room -= len(row.encode()) + 1
        if room < 0:
            break
        rows.append(row)
    if others:
        more = f" ({len(others) - len(rows)} more in project.json)" if len(rows) < len(others) else ""
        lines += [f"Open tasks of earlier sessions{more}:", *rows]
    lines += [f"Notebook: {_cut(entry, ENTRY)}" for entry in entries]
    return "\n".join((f"<{NOTE}>", *lines, f"</{NOTE}>"))


def project_text(project: Project, entries: Iterable[str]) -> str:
    """Return the project for the user, and for the model on request."""
    can = f" (can become {', '.join(project.moves)})" if project.moves else ""
    lines = [f"{project.name}: {project.state}{can}"]
    lines.append(f"goal: {project.goal}")
    done = len(project.tasks) - len(project.open_tasks)
    lines += [f"tasks: {done} of {len(project.tasks)} over"] if project.tasks else []
    lines += [f"- {task.id} {one_line(task.title)} ({task.status})" for task in project.open_tasks]
    lines += [f"notebook: {entry}" for entry in entries]
    return "\n".join(lines)


def _cut(text: str, room: int) -> str:
    """Return the text on one line of at most `room` bytes; it cannot end the note."""
    plain = unclosing(one_line(text, 1000))
    data = plain.encode("utf-8", "replace")
    return plain if len(data) <= room else data[: room - 3].decode("utf-8", "ignore") + "…"
