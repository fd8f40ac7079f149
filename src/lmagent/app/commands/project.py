"""The slash command /project."""

from __future__ import annotations

from collections.abc import Iterator

from lmagent.app.registry import SlashCommand
from lmagent.app.slash import WORK, SlashContext, SlashResult
from lmagent.core.errors import ConfigError, ToolError
from lmagent.notebook.files import ProjectFiles
from lmagent.notebook.show import project_text

USAGE = "[show|create GOAL|state STATE|note TEXT|pause|resume]"
ENTRIES = 10  # of the notebook


def commands() -> Iterator[SlashCommand]:
    yield SlashCommand("project", USAGE, "show or change the project of this folder: goal, state, notebook", _run, WORK)


async def _run(context: SlashContext, line: str) -> SlashResult:
    files = ProjectFiles(context.host.workspace, context.host.clock)
    verb, _, rest = line.strip().partition(" ")
    try:
        if verb in ("", "show"):
            project = files.read()
            none = "there is no project here; /project create GOAL begins one"
            return SlashResult(none if project is None else project_text(project, files.entries(ENTRIES)))
        if verb == "create":
            project = files.create(rest).project
            return SlashResult(f"the project {project.name} is {project.state}: {project.goal}")
        if verb == "note":
            return SlashResult(f"noted: {files.add_note(rest, 'user')}")
        if verb in ("pause", "resume") or (verb == "state" and rest):
            project = files.move({"pause": "paused", "resume": ""}.get(verb, rest)).project
            return SlashResult(f"the project {project.name} is {project.state}")
    except ToolError as error:
        raise ConfigError(error.message, fix="/project shows the project") from None
    raise ConfigError(f"/project does not know {line!r}", fix=f"/project {USAGE}")
