"""Delegating: a call begins a session of its own, and its result comes back."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import pytest
from agents_kit import a_host, by_brief, chats, children_of, do, of_type, report, results_of, use

from lmagent.core import events as ev
from lmagent.core.commands import Undo
from lmagent.testing import ScriptedServer
from lmagent.testing.script import Behaviour, call, calls, say, tool

WRITE = {
    "": [use("delegate", objective="write it", deliverable_type="file", deliverable_path="a.txt"), say("All done.")],
    "write it": [call("write", path="a.txt", content="hello\n"), report(artifacts=["a.txt"])],
}


def test_a_delegated_task_is_done_in_a_session_of_its_own_and_its_result_comes_back(tmp_path: Path) -> None:
    async def main() -> None:
        with ScriptedServer(by_brief(WRITE), strict=True) as server:
            async with a_host(tmp_path, server) as host:
                session = await host.new_session()
                finished = await do(session)
                assert finished.outcome == "done"
                (child,) = children_of(host, session)
                (result,) = results_of(host, session)
                assert (result.result.status, result.result.artifacts) == ("ok", ("a.txt",))
                assert (
                    "Sub-agent ok (2 steps)\nDone.\nFiles: a.txt" in server.requests[-1].body["messages"][-1]["content"]
                )
                briefs = [body["messages"][-1]["content"] for body in chats(server)]
                assert any("Objective: write it\nDeliverable: file a.txt\n" in brief for brief in briefs)
                first = next(iter(host.store.read(child)))
                assert isinstance(first, ev.SessionCreated)
                assert first.parent is not None
                assert first.parent.session == session.state.session
                assert of_type(host, child, ev.TurnFinished)[-1].outcome == "done"
                folder = tmp_path / ".lmagent" / "agents" / child
                brief, kept = (json.loads((folder / name).read_text()) for name in ("brief.json", "result.json"))
                assert brief["objective"] == "write it"
                assert brief["scope_path"] == f".lmagent/agents/{child}/scope"
                assert (folder / "scope").is_dir()
                assert kept["status"] == "ok"
                assert kept["iterations"] == 2
                assert session.state.work.child_steps == 2

    anyio.run(main)


def refused(workspace: Path, behaviour: Behaviour) -> tuple[str, list[str]]:
    """What the model is told of a call that cannot be carried out, and what was begun for it."""

    async def main() -> tuple[str, list[str]]:
        with ScriptedServer([behaviour, say("I see.")], strict=True) as server:
            async with a_host(workspace, server) as host:
                session = await host.new_session()
                await do(session)
                (finished,) = of_type(host, session.state.session, ev.ToolFinished)
                assert finished.status == "error"
                begun = children_of(host, session)
                begun += [path.name for path in workspace.glob(".lmagent/agents/*")]
                return finished.content, begun

    return anyio.run(main)


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        (use("decompose", manifest=[{"task_id": "a", "objective": "x", "depends_on": ["a"]}]), "go in a circle"),
        (use("decompose", manifest="{"), "not valid JSON"),
        (use("decompose", manifest=[{"task_id": "a", "objective": "x", "after": ["b"]}]), "unknown field `after`"),
        (
            use("decompose", manifest=[{"task_id": "a", "objective": "x", "deliverable": {"file": "a.txt"}}]),
            "unknown field `file`",
        ),
        (use("delegate"), "objective"),
        (use("delegate", objective="x", deliverable_type="song"), "song"),
    ],
)
def test_a_call_that_cannot_be_carried_out_records_nothing(tmp_path: Path, behaviour: Behaviour, reason: str) -> None:
    content, begun = refused(tmp_path, behaviour)
    assert reason in content
    assert not begun


def test_the_older_name_task_delegates(tmp_path: Path) -> None:
    async def main() -> None:
        script = {
            **WRITE,
            "": [use("task", task_type="file", instructions="write it", file_path="a.txt"), say("Done.")],
        }
        with ScriptedServer(by_brief(script), strict=True) as server:
            async with a_host(tmp_path, server) as host:
                session = await host.new_session()
                await do(session)
                (result,) = results_of(host, session)
                assert (result.result.status, result.result.artifacts) == ("ok", ("a.txt",))

    anyio.run(main)


CHAIN = [
    {"task_id": "sum", "objective": "add them", "depends_on": ["list"]},
    {"task_id": "list", "objective": "list them", "deliverable": {"type": "file", "path": "list.txt"}},
    {"task_id": "other", "objective": "something else"},
]


def chain(listing: list[Behaviour]) -> dict[str, list[Behaviour]]:
    return {
        "": [use("decompose", manifest=CHAIN), say("All done.")],
        "list them": listing,
        "add them": [report(summary="They are 6.", data={"sum": 6})],
        "something else": [report(summary="Else.")],
    }


def test_what_a_task_brought_is_passed_to_those_that_depend_on_it(tmp_path: Path) -> None:
    async def main() -> None:
        listing = [call("write", path="list.txt", content="1\n2\n3\n"), report(summary="Three.", data=[1, 2, 3])]
        with ScriptedServer(by_brief(chain(listing)), strict=True) as server:
            async with a_host(tmp_path, server) as host:
                session = await host.new_session()
                await do(session)
                started = {event.task: event for event in of_type(host, session.state.session, ev.SubagentStarted)}
                assert list(started) == ["list", "other", "sum"]
                data = started["sum"].brief.data
                assert "Result of list: ok: Three." in data
                assert "Its data: [1,2,3]" in data
                assert "Its file list.txt:\n1\n2\n3\n" in data
                assert started["other"].brief.data == ""
                told = chats(server)[-1]["messages"][-1]["content"]
                assert 'sum: ok (1 step)\nThey are 6.\nData: {"sum":6}' in told

    anyio.run(main)


def test_a_file_that_the_rules_hide_is_passed_on_by_its_name_alone(tmp_path: Path) -> None:
    async def main() -> None:
        listing = [call("write", path="list.txt", content="hidden\n"), report(summary="Three.", artifacts=["list.txt"])]
        with ScriptedServer(by_brief(chain(listing)), strict=True) as server:
            async with a_host(tmp_path, server, permission_deny=("read(list.txt)",)) as host:
                session = await host.new_session()
                await do(session)
                briefs = {event.task: event.brief for event in of_type(host, session.state.session, ev.SubagentStarted)}
                assert "Its file: list.txt" in briefs["sum"].data
                assert "hidden" not in briefs["sum"].data

    anyio.run(main)


def test_what_needs_a_failed_task_is_skipped_and_the_rest_is_done(tmp_path: Path) -> None:
    async def main() -> None:
        with ScriptedServer(by_brief(chain([report("error", "No.", error="no list")])), strict=True) as server:
            async with a_host(tmp_path, server) as host:
                session = await host.new_session()
                await do(session)
                assert [event.task for event in results_of(host, session)] == ["list", "other"]
                told = chats(server)[-1]["messages"][-1]["content"]
                assert "sum: skipped, since it needs list" in told
                (finished,) = of_type(host, session.state.session, ev.ToolFinished)
                assert finished.data["tasks"] == {"list": "error", "other": "ok", "sum": "skipped"}

    anyio.run(main)


def test_two_delegations_in_one_reply_come_one_after_the_other_and_the_second_sees_the_first(tmp_path: Path) -> None:
    async def main() -> None:
        script = {
            "": [
                calls(tool("delegate", objective="one"), tool("delegate", objective="two")),
                say("All done."),
            ],
            "one": [report(summary="First.")],
            "two": [report(summary="Second.")],
        }
        with ScriptedServer(by_brief(script), strict=True) as server:
            async with a_host(tmp_path, server) as host:
                session = await host.new_session()
                finished = await do(session)
                assert finished.outcome == "done"
                kinds = [type(event) for event in host.store.read(session.state.session)]
                assert [kind for kind in kinds if kind in (ev.SubagentStarted, ev.SubagentFinished)] == [
                    ev.SubagentStarted,
                    ev.SubagentFinished,
                ] * 2

    anyio.run(main)


def test_what_sub_agents_changed_is_taken_back_from_their_session(tmp_path: Path) -> None:
    async def main() -> None:
        with ScriptedServer(by_brief(WRITE), strict=True) as server:
            async with a_host(tmp_path, server) as host:
                session = await host.new_session()
                await do(session)
                assert (tmp_path / "a.txt").exists()
                await session.send(Undo(turn=True))
                assert not (tmp_path / "a.txt").exists()

    anyio.run(main)
