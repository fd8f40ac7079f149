"""/undo of a turn: what the model did to its tasks in it is put back with its files."""

from __future__ import annotations

from pathlib import Path

import anyio
from planned import done, plan, running, use

from lmagent.core import events as ev
from lmagent.core.commands import ChangeTasks, DecidePlan, SetWork
from lmagent.core.work import Task, TaskState
from lmagent.engine.state import SessionState
from lmagent.testing.script import call, say

TWO = plan(("a", ()), ("b", ("a",)))
WRITE = call("write", path="new.txt", content="x\n")


def statuses(run) -> list[str]:
    return [task.status for task in run.work.tasks.values()]


async def carried_out(run) -> None:
    await run.session.send(SetWork(mode="plan", by="test"))
    await run.submit("tidy up")
    await run.session.send(DecidePlan(decision="approved", by="test"))
    await run.go()


def play(folder: Path, *script, act) -> None:
    async def go() -> None:
        async with running(folder, *script) as run:
            await act(run)
            events = list(run.host.store.read(run.session.state.session))
            again = SessionState(session=run.session.state.session)
            for event in events:
                again.apply(event)
            assert again.work == run.session.state.work, "the fold of the log says the same"

    anyio.run(go)


def test_steps_of_a_turn_that_is_undone_are_open_again_and_all_are_told(folder):
    async def act(run) -> None:
        await carried_out(run)
        assert statuses(run) == ["completed", "completed"]
        said = await run.slash("/undo")
        assert "Undone: new.txt" in said.text
        assert "a is pending again" in said.text
        assert statuses(run) == ["pending", "pending"]
        assert run.work.tasks["a"].result == ""
        await run.submit("and now?")
        note = run.sent.rpartition("<tasks>")[2]
        assert "Changed by others (undo" in note
        assert "The user took back your changes of new.txt" in run.sent
        assert (await run.slash("/redo")).text.startswith("Redone: new.txt\ntasks: a is completed again")
        assert statuses(run) == ["completed", "completed"]

    play(folder, say(TWO), WRITE, done("a"), done("b"), say("All done."), say("Two steps are open."), *[say("?")] * 6,
         act=act)  # fmt: skip


def test_a_turn_of_which_something_stands_keeps_its_tasks(folder):
    more = call("write", path="more.txt", content="y\n")

    async def act(run) -> None:
        await carried_out(run)
        await run.slash("/undo")
        assert statuses(run) == ["completed", "completed"]
        said = await run.slash("/undo")
        assert "a is pending again" in said.text
        assert statuses(run) == ["pending", "pending"]
        await run.slash("/redo")
        assert statuses(run) == ["pending", "pending"], "half of the turn is not the turn"
        await run.slash("/redo")
        assert statuses(run) == ["completed", "completed"]

    play(folder, say(TWO), WRITE, more, done("a"), done("b"), say("All done."), act=act)


def test_what_a_person_changed_since_stays(folder):
    async def act(run) -> None:
        await carried_out(run)
        await run.slash("/todo open b")
        await run.session.send(ChangeTasks(items=(Task("c", "todo", "mine", depends_on=("b",)),), by="test"))
        await run.slash("/undo turn")
        assert {id: task.status for id, task in run.work.tasks.items()} == {
            "a": "pending",
            "b": "pending",
            "c": "pending",
        }
        assert run.work.tasks["b"].result == "saw b", "what a person has touched is theirs"

    play(folder, say(TWO), WRITE, done("a"), done("b"), say("All done."), act=act)


def test_todos_and_the_task_state_of_the_turn_go_with_it(folder):
    async def act(run) -> None:
        await run.slash("/todo add mine")
        await run.submit("do it")
        assert len(run.work.tasks) == 2
        assert run.work.state.objective == "all"
        said = await run.slash("/undo all")
        assert "the task state is as it was" in said.text
        assert [task.title for task in run.work.tasks.values()] == ["mine"]
        assert run.work.state == TaskState()

    play(
        folder,
        use("todo_add", description="one"),
        use("task_state_update", objective="all"),
        WRITE,
        say("Done."),
        *[say("Done.")] * 3,
        act=act,
    )


def test_an_undo_that_was_killed_before_its_end_is_said_again(folder):
    async def act(run) -> None:
        await carried_out(run)
        tasks = run.work.put_back([event.turn for event in run.of(ev.FilesChanged)], "before")
        await run.session.record(tasks)  # what is on record when it is killed right then
        assert statuses(run) == ["pending", "pending"]
        said = await run.slash("/undo")
        assert said.text.startswith("Undone: new.txt")
        assert statuses(run) == ["pending", "pending"]
        await run.slash("/redo")
        assert statuses(run) == ["completed", "completed"]

    play(folder, say(TWO), WRITE, done("a"), done("b"), say("All done."), act=act)
