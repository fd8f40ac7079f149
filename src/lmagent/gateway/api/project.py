"""Project: the goal, state, open tasks and notebook of the workspace's project."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from lmagent.core.errors import ToolError
from lmagent.gateway.http.errors import refusing
from lmagent.gateway.http.route import Call, Routes
from lmagent.notebook.files import ProjectFiles

ROUTES = Routes()

ENTRIES = 20  # of the notebook


class OpenTask(Struct, frozen=True):
    """A task that is not over; `session` has it among its own, empty for none."""

    id: str
    title: str
    status: str
    session: str = ""


class ProjectView(Struct, frozen=True):
    """A project; `state` is empty if the workspace has none. `moves` are the states that it can be moved to."""

    name: str = ""
    goal: str = ""
    state: str = ""
    moves: tuple[str, ...] = ()
    tasks: tuple[OpenTask, ...] = ()
    notebook: tuple[str, ...] = ()


class ProjectChange(Struct, frozen=True):
    """A change; `text` is the goal, the state or the note."""

    operation: Literal["create", "state", "note"]
    text: Annotated[str, Meta(min_length=1, max_length=4000)]


@ROUTES.get("/api/project", "The project of the workspace")
def show_project(call: Call) -> ProjectView:
    with refusing(ToolError, 409, "project"):
        return _view(_files(call))


@ROUTES.post("/api/project", "Create a project, change its state, or add a note")
def change_project(call: Call, body: ProjectChange) -> ProjectView:
    files = _files(call)
    with refusing(ToolError, 409, "project"):
        if body.operation == "create":
            files.create(body.text)
        elif body.operation == "state":
            files.move(body.text)
        else:
            files.add_note(body.text, "user")
        return _view(files)


def _files(call: Call) -> ProjectFiles:
    return ProjectFiles(call.gateway.host.workspace, call.gateway.host.clock)


def _view(files: ProjectFiles) -> ProjectView:
    project = files.read()
    if project is None:
        return ProjectView()
    return ProjectView(
        project.name,
        project.goal,
        project.state,
        project.moves,
        tuple(OpenTask(task.id, task.title, task.status, task.session) for task in project.open_tasks),
        tuple(files.entries(ENTRIES)),
    )
