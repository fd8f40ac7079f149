"""Todos, the task tree and the task state: what calls do, and what they refuse."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from planned import running, use, uses

from lmagent.core import events as ev
from lmagent.core.work import TaskState
from lmagent.testing.script import say


def told(folder: Path, *calls) -> tuple[list[str], dict]:
    """What the calls were answered, and the tasks at the end."""

    async def go():
        async with running(folder, *calls, say("Done."), say("Done."), say("Done.")) as run:
            await run.submit()
            return run.results, dict(run.work.tasks), run.work.state

    results, tasks, state = anyio.run(go)
    return results, {"tasks": tasks, "state": state}


def test_todos_are_added_changed_and_listed_under_ids_of_their_own(folder):
    results, end = told(
        folder,
        uses(("todo_add", {"description": "read"}), ("todo_add", {"description": "write", "notes": "carefully"})),
        use("todo_update", todo_id="todo2", status="in_progress", notes="half"),
        use("todo_complete", todo_id=1),
        use("todo_list"),
        use("todo_complete", todo_id="todo2"),
    )
    assert results[0] == "- todo1 [pending] read"
    assert results[1].startswith("- todo2 [pending] write")
    assert results[4] == "1 of 2 done\n- todo1 [completed] read\n- todo2 [in_progress] write (notes: half)"
    assert all(not task.is_open for task in end["tasks"].values())


@pytest.mark.parametrize(
    ("name", "arguments", "why"),
    [
        ("todo_add", {"description": "  "}, "description is empty"),
        ("todo_add", {"description": "x" * 3000}, "at most 2,000"),
        ("todo_complete", {"todo_id": "todo9"}, "nor any other"),
        ("todo_update", {"todo_id": "todo9", "status": "done"}, "Invalid enum value"),
        ("plan_complete_step", {"step_id": "s1", "verification_notes": "seen"}, "no step of an approved plan"),
        ("task_state_update", {}, "Nothing was given"),
        ("task_state_update", {"total_count": 3, "processed_count": 4}, "over total_count"),
        ("task_state_update", {"processed_count": -1}, "below 0"),
        ("task_state_update", {"remaining_queue": [f"item {n}" for n in range(600)]}, "too long"),
        ("task_reconcile", {}, "no task state"),
        ("manage_tasks", {"action": "delete", "task_id": "t1"}, "nor any other"),
        ("manage_tasks", {"action": "create"}, "title is empty"),
        ("manage_tasks", {"action": "create", "tasks": [{"title": "a", "after": "b"}]}, "unknown field `after`"),
        ("manage_tasks", {"action": "create", "title": "a", "task_id": "a b"}, "no id"),
        ("manage_tasks", {"action": "create", "title": "a", "task_id": "a", "depends_on": ["a"]}, "depends on itself"),
        ("manage_tasks", {"action": "create", "title": "a", "depends_on": ["b"]}, "does not exist"),
        ("manage_tasks", {"action": "create", "title": "a", "parent": "b"}, "is part of b, which does not exist"),
    ],
)
def test_a_refusal_says_why_and_changes_nothing(folder, name, arguments, why):
    results, end = told(folder, use(name, **arguments))
    assert why in results[0]
    assert end == {"tasks": {}, "state": TaskState()}


TREE = [
    {"task_id": "build", "title": "build it", "depends_on": ["read"]},
    {"task_id": "read", "title": "read it"},
    {"task_id": "test", "title": "test it", "depends_on": ["build"]},
]


def test_a_tree_of_tasks_is_listed_in_the_order_in_which_it_can_be_done(folder):
    results, _ = told(
        folder,
        use("manage_tasks", action="create", tasks=TREE),
        use("manage_tasks", action="list"),
        use("manage_tasks", action="validate"),
    )
    order = [line.split()[1] for line in results[1].splitlines()[1:]]
    assert order == ["read", "build", "test"]
    assert results[1].count("ready") == 1
    assert "3 open; next: read" in results[2]


def test_a_task_begins_and_ends_only_after_what_it_depends_on(folder):
    results, end = told(
        folder,
        use("manage_tasks", action="create", tasks=TREE),
        use("manage_tasks", action="complete", task_id="test"),
        use("manage_tasks", action="update", task_id="build", status="in_progress"),
        use("manage_tasks", action="complete", task_id="read", result="all read"),
        use("manage_tasks", action="complete", task_id="build"),
        use("manage_tasks", action="complete", task_id="test"),
    )
    assert "test comes after build, not done yet" in results[1]
    assert "build comes after read, not done yet" in results[2]
    assert {task.status for task in end["tasks"].values()} == {"completed"}
    assert end["tasks"]["read"].result == "all read"


def test_a_circle_a_part_of_itself_and_a_double_id_are_refused_whole(folder):
    circle = [{"task_id": "a", "title": "a", "depends_on": ["b"]}, {"task_id": "b", "title": "b", "depends_on": ["a"]}]
    twice = [{"task_id": "c", "title": "c"}, {"task_id": "c", "title": "again"}]
    whole = [{"task_id": "d", "title": "d"}, {"task_id": "e", "title": "e", "parent": "d", "depends_on": ["d"]}]
    results, end = told(
        folder,
        use("manage_tasks", action="create", tasks=circle),
        use("manage_tasks", action="create", tasks=twice),
        use("manage_tasks", action="create", tasks=whole),
        use("manage_tasks", action="create", tasks=TREE),
        use("manage_tasks", action="connect", task_id="read", depends_on=["test"]),
        use("manage_tasks", action="delete", task_id="read"),
    )
    assert "a → b → a" in results[0]
    assert "given twice" in results[1]
    assert "circle" in results[2]
    assert "circle" in results[4]
    assert "build depend on read" in results[5]
    assert set(end["tasks"]) == {"build", "read", "test"}
    assert end["tasks"]["read"].depends_on == ()


def test_connections_are_made_and_taken_back_and_parts_hold_up_the_whole(folder):
    results, end = told(
        folder,
        use("manage_tasks", action="create", tasks=[*TREE, {"task_id": "part", "title": "x", "parent": "read"}]),
        use("manage_tasks", action="complete", task_id="read"),
        use("manage_tasks", action="connect", task_id="test", depends_on=["read"]),
        use("manage_tasks", action="disconnect", task_id="test", depends_on=["build"]),
        use("manage_tasks", action="disconnect", task_id="test", depends_on=["build"]),
        use("manage_tasks", action="delete", task_id="build"),
    )
    assert "read has open parts: part" in results[1]
    assert end["tasks"]["test"].depends_on == ("read",)
    assert "not on build" in results[4]
    assert set(end["tasks"]) == {"read", "test", "part"}


def test_a_hundred_tasks_at_once_are_taken_and_a_hundred_and_one_are_not(folder):
    many = [{"task_id": f"n{n}", "title": f"task {n}", "depends_on": [f"n{n - 1}"] if n else []} for n in range(101)]
    results, end = told(
        folder,
        use("manage_tasks", action="create", tasks=many),
        use("manage_tasks", action="create", tasks=many[:100]),
    )
    assert "at most 100" in results[0]
    assert len(end["tasks"]) == 100
    assert "up to n99" in results[1]


def test_more_than_the_window_can_always_hold_is_refused(folder):
    many = [{"task_id": f"n{n}", "title": "a title that is not so short " * 3} for n in range(100)]

    async def go() -> None:
        script = [use("manage_tasks", action="create", tasks=many), say("Done."), say("Done.")]
        async with running(folder, *script, context_window=6000) as run:
            await run.submit()
            assert "All that is open would take" in run.results[0]
            assert run.work.tasks == {}

    anyio.run(go)


def test_a_window_of_4k_is_not_told_of_the_long_tools_and_runs_them_all_the_same(folder):
    async def go() -> None:
        script = [use("manage_tasks", action="create", title="one"), say("Done."), say("Done.")]
        async with running(folder, *script, context_window=4096) as run:
            await run.submit()
            first = str(run.server.chats[0].body["messages"])
            assert "todo_add" in first
            assert "manage_tasks" not in first
            assert list(run.work.tasks) == ["t1"]

    anyio.run(go)


def test_the_task_state_is_merged_and_an_error_can_be_cleared(folder):
    results, end = told(
        folder,
        use("task_state_update", objective="rename all", total_count=2, last_error="no space", remaining_queue=["a"]),
        use("task_state_update", processed_count=1, last_error="", rename_map={"a": "b"}),
        use("task_state_get"),
    )
    assert end["state"] == TaskState("rename all", "", 2, 1, ("a",), {"a": "b"})
    assert "- processed: 1 of 2" in results[2]
    assert "no space" not in results[2]


def test_reconciling_corrects_the_queue_by_the_files_and_names_what_contradicts(folder):
    (folder / "new.txt").write_text("here")
    state = {
        "total_count": 9,
        "remaining_queue": ["old.txt", "gone.txt", "gone.txt"],
        "rename_map": {"old.txt": "new.txt"},
    }
    results, end = told(folder, use("task_state_update", **state), use("task_reconcile"), use("task_reconcile"))
    assert end["state"].remaining_queue == ("new.txt", "gone.txt")
    assert "old.txt is called new.txt now" in results[1]
    assert "there is no such file: gone.txt" in results[1]
    assert "make 2, but total_count is 9" in results[2]


def test_a_call_that_a_crash_repeats_changes_nothing_a_second_time(folder):
    async def go() -> None:
        async with running(folder, use("todo_add", description="once"), say("Done."), say("Done.")) as run:
            await run.submit()
            (change,) = run.of(ev.TasksChanged)
            tool = run.host.toolbox.get("todo_add")
            from lmagent.core.tool import ToolContext
            from lmagent.planning.tools import TodoAdd

            context = ToolContext(run.session.state.session, change.call, folder, {}, lambda _: None)
            output = await tool.run(TodoAdd("once"), context)
            assert output.content == "- todo1 [pending] once"
            assert len(run.of(ev.TasksChanged)) == 1

    anyio.run(go)


def test_without_todo_tracking_there_are_no_todo_tools(folder):
    async def go() -> None:
        async with running(folder, say("Hello."), enable_todo_tracking=False) as run:
            await run.submit()
            assert run.host.toolbox.get("todo_add") is None
            assert run.host.toolbox.get("manage_tasks") is not None

    anyio.run(go)
