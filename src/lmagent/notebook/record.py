"""Record: `project.json` as data, the states of a project, and how it follows the tasks of sessions. No effects.

    planning → executing → reviewing → complete, and back from reviewing to executing
    paused: from each state but complete, and back to the state before

Fields that are not known here are kept: the file may be another program's, and the user edits it by hand.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from lmagent.core.decoding import convert
from lmagent.core.work import Task

MOVES: Mapping[str, tuple[str, ...]] = {
    "planning": ("executing",),
    "executing": ("reviewing",),
    "reviewing": ("executing", "complete"),
    "complete": (),
}
PAUSED = "paused"
OPEN = ("pending", "in_progress", "blocked")

TAKES = "project task "  # notes of a todo begin so if it takes over a task of an earlier session
_TITLES = ("title", "description", "name")  # the first that a task has is its title
_STATUS = {"completed": "complete"}  # the earlier format's word; ours otherwise


class NotAProject(ValueError):
    """The file is JSON of another program."""


class ProjectTask(Struct, frozen=True):
    """One task of the file: `session` and `session_task` name the task that it follows, `taken_from` earlier ones."""

    raw: dict[str, Any]

    @property
    def id(self) -> str:
        return str(self.raw["id"])

    @property
    def title(self) -> str:
        return str(self.raw.get(self._titled, ""))

    @property
    def status(self) -> str:
        return str(self.raw.get("status", "pending")).lower()

    @property
    def session(self) -> str:
        return str(self.raw.get("session", ""))

    @property
    def key(self) -> str:
        return f"{self.session}:{self.raw.get('session_task', '')}"

    @property
    def taken_from(self) -> list[str]:
        before = self.raw.get("taken_from")
        return [str(key) for key in before] if isinstance(before, list) else []  # type: ignore[reportUnknownVariableType]

    @property
    def is_open(self) -> bool:
        return self.status in OPEN

    @property
    def _titled(self) -> str:
        return next((name for name in _TITLES if isinstance(self.raw.get(name), str)), _TITLES[0])

    def follow(self, task: Task) -> ProjectTask:
        news = {self._titled: task.title, "status": _STATUS.get(task.status, task.status)}
        return ProjectTask({**self.raw, **news})

    def take(self, session: str, task: str) -> ProjectTask:
        """Return the task as the session's own."""
        before = [*self.taken_from, *([self.key] if self.session else [])]
        news: dict[str, Any] = {"session": session, "session_task": task}
        return ProjectTask({**self.raw, **news, **({"taken_from": before} if before else {})})


class Project(Struct, frozen=True):
    """A project; `before` is the state that it was paused in, `raw` the object of the file."""

    name: str
    goal: str
    state: str = "planning"
    before: str = ""
    tasks: tuple[ProjectTask, ...] = ()
    raw: dict[str, Any] = {}

    @property
    def open_tasks(self) -> list[ProjectTask]:
        return [task for task in self.tasks if task.is_open]

    @property
    def moves(self) -> tuple[str, ...]:
        """The states that the project can move to."""
        if self.state == PAUSED:
            return (self.before if self.before in MOVES else "planning",)
        return (*MOVES[self.state], PAUSED) if MOVES[self.state] else ()


def move(project: Project, to: str) -> Project:
    """Return the project in another state. Raise ValueError, which names the possible ones."""
    if to == project.state:
        return project
    if to not in (can := project.moves):
        where = f"possible from {project.state}: {', '.join(can)}" if can else f"a project that is {project.state} ends"
        raise ValueError(f"the project cannot become {to or 'nothing'!r}; {where}")
    return replace(project, state=to, before=project.state if to == PAUSED else "")


def follow(project: Project, session: str, tasks: Iterable[Task]) -> Project:
    """Return the project with the present tasks of a session; those of other sessions stay."""
    taken = {key for row in project.tasks for key in row.taken_from}
    own = {task.id: task for task in tasks if f"{session}:{task.id}" not in taken}
    mapped = {row.key for row in project.tasks}
    takes = {
        task.notes.removeprefix(TAKES).partition("\n")[0]: task.id
        for task in own.values()
        if task.notes.startswith(TAKES) and f"{session}:{task.id}" not in mapped
    }
    rows = list[ProjectTask]()
    for row in project.tasks:
        mine = row.take(session, takes[row.id]) if row.id in takes else row
        if mine.session != session:
            rows.append(row)
        elif (task := own.pop(str(mine.raw.get("session_task", "")), None)) is not None:
            rows.append(mine.follow(task))
    for task in own.values():
        row = ProjectTask({"id": _fresh(rows), "title": "", "session": session, "session_task": task.id})
        rows.append(row.follow(task))
    return replace(project, tasks=tuple(rows))


def parse(data: bytes) -> Project:
    """Return the project of a file. Raise ValueError for a damaged one, NotAProject for another program's."""
    raw: Any = msgspec.json.decode(data)
    found = cast("dict[str, Any]", raw if isinstance(raw, dict) else {})
    if not isinstance(found.get("state"), str):
        raise NotAProject("it has no state")
    state = found["state"].lower()
    if state not in (*MOVES, PAUSED):
        raise ValueError(f"its state is {state!r}, not one of {', '.join((*MOVES, PAUSED))}")
    try:
        given = convert(found.get("tasks") or [], list[dict[str, Any]])
    except msgspec.ValidationError:
        raise ValueError("its tasks are not a list of objects") from None
    known = [ProjectTask(task) for task in given if "id" in task]
    rows = list[ProjectTask]()
    for task in given:
        rows.append(ProjectTask(task if "id" in task else {"id": _fresh([*known, *rows]), **task}))
    before = str(found.get("paused_from", "")).lower()
    return Project(str(found.get("name", "")), str(found.get("goal", "")), state, before, tuple(rows), found)


def encode(project: Project, now: float) -> bytes:
    updated = datetime.fromtimestamp(int(now), UTC).isoformat().replace("+00:00", "Z")
    raw = {
        **project.raw,
        "name": project.name,
        "goal": project.goal,
        "state": project.state,
        "paused_from": project.before,
        "tasks": [task.raw for task in project.tasks],
        "updated": updated,
    }
    if not project.before:
        raw.pop("paused_from")
    return msgspec.json.format(msgspec.json.encode(raw)) + b"\n"


def _fresh(rows: Iterable[ProjectTask]) -> str:
    numbers = [int(number) for row in rows if (number := row.id.removeprefix("p")) != row.id and number.isdecimal()]
    return f"p{max(numbers, default=0) + 1}"
