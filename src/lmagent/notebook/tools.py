"""The tool `project`: its description for the model, and its calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from lmagent.core.tool import Tool, ToolContext, ToolOutput

if TYPE_CHECKING:
    from lmagent.notebook.feature import Projects

Operation = Literal["show", "create", "state", "note", "tasks"]


class ProjectCall(Struct, frozen=True):
    """Arguments: `text` is the goal, the state or the note; `take` lists ids of tasks."""

    operation: Operation
    text: str = ""
    name: str = ""
    take: tuple[str, ...] = ()


def project_tool(projects: Callable[[], Projects]) -> Tool:
    async def run(arguments: ProjectCall, context: ToolContext) -> ToolOutput:
        from lmagent.notebook.calls import carry_out

        return await carry_out(projects(), arguments, context)

    # It writes files of the workspace, so the permissions and undo hold for it as for `write`.
    return Tool(
        name="project",
        description="Keep project.json over sessions. operation: create, state (planning, executing, reviewing, "
        "complete, paused), note (notebook), tasks (take: ids to take over), show; text: goal, state or note.",
        arguments=ProjectCall,
        effect="write",
        run=run,
        deferred=True,
        renames={"goal": "text", "state": "text", "note": "text", "action": "operation"},
        summary=lambda arguments: f"project {arguments.operation} {arguments.text or ' '.join(arguments.take)}"[:120],
        targets=lambda arguments: ("lab_notebook.md",) if arguments.operation == "note" else ("project.json",),
    )
