"""Calls of the tool `project`; imported at the first one."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from anyio import to_thread

from lmagent.core.errors import ToolError
from lmagent.core.events import TasksChanged
from lmagent.core.tool import ToolContext, ToolOutput
from lmagent.core.work import Task
from lmagent.notebook.files import NOTEBOOK
from lmagent.notebook.record import TAKES
from lmagent.notebook.show import project_text
from lmagent.notebook.tools import ProjectCall
from lmagent.planning.tasks import Store, fresh, require_few

if TYPE_CHECKING:
    from lmagent.engine.work import WorkState
    from lmagent.notebook.feature import Projects

ENTRIES = 10  # of the notebook that `show` returns


async def carry_out(projects: Projects, arguments: ProjectCall, context: ToolContext) -> ToolOutput:
    files, text = projects.files, arguments.text
    if arguments.operation == "note":
        entry = await to_thread.run_sync(files.add_note, text, "agent")
        return ToolOutput(f"Noted: {entry}", {"path": NOTEBOOK, "changed": True})
    if arguments.operation == "create":
        written = await to_thread.run_sync(partial(files.create, text, arguments.name))
        projects.follow(context.session)
        return ToolOutput(f"Created project.json; the state is {written.project.state}.", written.facts)
    if arguments.operation == "state" and text:
        written = await to_thread.run_sync(files.move, text)
        left = len(written.project.open_tasks)
        return ToolOutput(f"The project is {written.project.state}; open tasks: {left}.", written.facts)
    if arguments.operation == "tasks" and arguments.take:
        return await _take(projects, arguments, context)
    return ToolOutput(project_text(files.need(), files.entries(ENTRIES)))


async def _take(projects: Projects, arguments: ProjectCall, context: ToolContext) -> ToolOutput:
    """Take over tasks as todos. The file follows the todos, which name the tasks that they take over."""
    project = projects.files.need()
    rows = {task.id: task for task in project.open_tasks if task.session != context.session}
    if unknown := [id for id in arguments.take if id not in rows]:
        raise ToolError(f"No open task of another session is {', '.join(unknown)}. There are: {', '.join(rows)}.")
    if project.state in ("paused", "complete"):
        raise ToolError(f"The project is {project.state}; its tasks are not taken over.")

    def build(work: WorkState) -> TasksChanged:
        require_few(work, len(arguments.take))
        first = int(fresh(work, "todo").removeprefix("todo"))
        taken = enumerate(dict.fromkeys(arguments.take), first)
        return TasksChanged(
            items=tuple(Task(f"todo{number}", "todo", rows[id].title, notes=f"{TAKES}{id}") for number, id in taken)
        )

    return await Store(projects.session).change(context, build)
