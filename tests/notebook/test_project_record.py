"""The states of a project, and its file: read as it is, followed by sessions, never lost."""

from __future__ import annotations

import json

import pytest

from lmagent.core.work import Task
from lmagent.notebook.record import TAKES, NotAProject, Project, encode, follow, move, parse

OLDER = {
    "name": "Rate study",
    "goal": "Find out",
    "state": "EXECUTING",
    "owner": "Ada",
    "tasks": [
        {"id": "t-1", "description": "collect", "status": "complete", "effort": 3},
        {"description": "compare", "status": "in_progress"},
    ],
}


def todo(id: str, title: str, **more: str) -> Task:
    return Task(id, "todo", title, **more)  # type: ignore[arg-type]


def rows(project: Project) -> list[tuple[str, str, str]]:
    return [(task.id, task.title, task.status) for task in project.tasks]


def test_a_project_goes_through_its_states_and_back_from_reviewing():
    project = Project("p", "g")
    for state in ("executing", "reviewing", "executing", "reviewing", "complete"):
        project = move(project, state)
    assert project.moves == ()


@pytest.mark.parametrize("state", ["planning", "executing", "reviewing"])
def test_a_paused_project_goes_back_to_where_it_was_and_nowhere_else(state):
    paused = move(Project("p", "g", state), "paused")
    assert paused.moves == (state,)
    assert move(paused, state).state == state
    with pytest.raises(ValueError, match=f"possible from paused: {state}"):
        move(paused, "complete")


@pytest.mark.parametrize(
    ("state", "to"), [("planning", "reviewing"), ("executing", "complete"), ("complete", "paused")]
)
def test_a_wrong_move_is_refused_with_the_possible_ones(state, to):
    with pytest.raises(ValueError, match="the project cannot become") as refused:
        move(Project("p", "g", state), to)
    assert all(can in str(refused.value) for can in Project("p", "g", state).moves)


def test_the_file_of_the_older_system_is_read_as_it_is_and_its_own_fields_are_kept():
    project = parse(json.dumps(OLDER).encode())
    assert (project.name, project.goal, project.state) == ("Rate study", "Find out", "executing")
    assert rows(project) == [("t-1", "collect", "complete"), ("p1", "compare", "in_progress")]
    kept = json.loads(encode(move(project, "reviewing"), 1_795_800_000))
    assert (kept["state"], kept["owner"], kept["tasks"][0]) == ("reviewing", "Ada", OLDER["tasks"][0])  # type: ignore[index]
    assert kept["updated"].startswith("2026-11-2")


@pytest.mark.parametrize(
    "text", ["", "{", '{"state": "flying"}', '{"state": "paused", "tasks": 3}', "\xff", "[" * 9999]
)
def test_a_damaged_file_is_an_error(text):
    with pytest.raises((ValueError, RecursionError)) as damaged:
        parse(text.encode("latin-1"))
    assert not isinstance(damaged.value, NotAProject)


@pytest.mark.parametrize("text", ["[]", '{"name": "app", "targets": {}}', '{"state": {"a": 1}}'])
def test_the_project_json_of_another_program_is_no_project(text):
    with pytest.raises(NotAProject):
        parse(text.encode())


def test_a_session_changes_its_own_tasks_in_the_file_and_their_ids_stay():
    project = follow(Project("p", "g"), "A", [todo("todo1", "one"), todo("todo2", "two")])
    project = follow(project, "B", [todo("todo1", "three")])
    project = follow(project, "A", [todo("todo2", "two", status="completed"), todo("todo3", "four")])
    assert rows(project) == [("p2", "two", "complete"), ("p3", "three", "pending"), ("p4", "four", "pending")]
    assert follow(project, "C", []) == project


def test_a_task_that_another_session_takes_over_keeps_its_id_and_follows_that_session():
    project = follow(parse(json.dumps(OLDER).encode()), "A", [todo("todo1", "write")])
    taken = [todo("todo1", "compare", notes=f"{TAKES}p1"), todo("todo2", "write", notes=f"{TAKES}p2")]
    project = follow(project, "B", taken)
    assert project == follow(project, "B", taken)
    assert [task.session for task in project.tasks] == ["", "B", "B"]
    again = follow(project, "A", [todo("todo1", "write", status="failed")])
    assert again == project, "the session that had it before changes it no more"
    done = follow(project, "B", [Task("todo1", "todo", "compare", "completed"), taken[1]])
    assert rows(done)[1:] == [("p1", "compare", "complete"), ("p2", "write", "pending")]
    assert follow(done, "C", [todo("todo9", "write", notes=f"{TAKES}p2")]).tasks[2].session == "C"
