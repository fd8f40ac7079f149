"""Crashes at odd moments, words that come late, and logs that others wrote: what sub-agents make of them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import anyio
import pytest
from agents_kit import a_host, by_brief, chats, children_of, do, of_type, report, results_of, use

from lmagent.core import events as ev
from lmagent.core.commands import Continue, Interrupt, Steer, Submit
from lmagent.core.messages import user
from lmagent.engine.lane import run_until_idle
from lmagent.testing import ScriptedServer
from lmagent.testing.script import Behaviour, call, hang, say


def delegating(*child: Behaviour) -> dict[str, list[Behaviour]]:
    return {"": [use("delegate", objective="the part"), say("All done.")], "the part": list(child)}


def logs_of(workspace: Path, script: dict[str, list[Behaviour]]) -> tuple[Path, Path]:
    """The log of a session that was done, and its sub-agent's."""

    async def main() -> tuple[str, str]:
        with ScriptedServer(by_brief(script)) as server:
            async with a_host(workspace, server) as host:
                session = await host.new_session()
                await do(session)
                return session.state.session, children_of(host, session)[0]

    names = anyio.run(main)
    first, second = (workspace / ".lmagent" / "sessions" / name / "events.jsonl" for name in names)
    return first, second


def cut(log: Path, kind: str, *, behind: bool = False) -> None:
    """Let a log end before its last event of a kind, or behind it."""
    lines = log.read_text().splitlines(keepends=True)
    at = max(number for number, line in enumerate(lines) if f'"type":"{kind}"' in line)
    log.write_text("".join(lines[: at + behind]))


def gone_on_with(workspace: Path, log: Path, script: dict[str, list[Behaviour]], **flags: Any) -> dict[str, Any]:
    seen: dict[str, Any] = {}

    async def main() -> None:
        with ScriptedServer(by_brief(script)) as server:
            async with a_host(workspace, server, **flags) as host:
                session = await host.open_session(log.parent.name)
                await session.send(Continue())
                seen["finished"] = await run_until_idle(session)
                seen["results"] = [event.result for event in results_of(host, session)]
                seen["notices"] = of_type(host, session.state.session, ev.Notice)
                seen["requests"] = len(chats(server))

    anyio.run(main)
    return seen


@pytest.mark.parametrize("kind", ["result.reported", "tool.finished"])
def test_a_sub_agent_that_was_killed_behind_its_report_does_nothing_more(kind: str, tmp_path: Path) -> None:
    script = delegating(report(), call("write", path="late.txt", content="late\n"), report())
    main, child = logs_of(tmp_path, script)
    cut(main, "subagent.finished")
    cut(child, kind, behind=True)
    seen = gone_on_with(tmp_path, main, script)
    assert (seen["finished"].outcome, [result.status for result in seen["results"]]) == ("done", ["ok"])
    assert seen["requests"] == 1, "the session's own"
    assert not (tmp_path / "late.txt").exists()


def told_late(workspace: Path, *child: Behaviour) -> Any:
    """The result of a sub-agent that is told something while the model writes its report."""

    async def main() -> Any:
        with ScriptedServer(by_brief(delegating(*child))) as server:
            async with a_host(workspace, server) as host:
                session = await host.new_session()
                await session.send(Submit(message=user("do it")))
                async with anyio.create_task_group() as tasks:

                    def hear(event: ev.Event) -> None:
                        if isinstance(event, ev.SubagentEvent) and isinstance(event.event, ev.StepStarted):
                            stop()
                            steer = Steer(message=user("and greet them"), to=event.child)
                            tasks.start_soon(session.send, steer)

                    stop = session.listen(hear)
                    await run_until_idle(session)
                return results_of(host, session)[0].result

    return anyio.run(main)


def test_words_that_come_while_it_reports_are_worked_on_and_reported_anew(tmp_path: Path) -> None:
    result = told_late(
        tmp_path, report(summary="first"), call("write", path="a.txt", content="hi\n"), report(summary="greeted")
    )
    assert (result.status, result.summary, result.artifacts) == ("ok", "greeted", ("a.txt",))


def test_what_was_reported_before_such_words_is_not_called_all_of_it(tmp_path: Path) -> None:
    result = told_late(tmp_path, report(summary="first"), say("BLOCKED: nobody to greet"))
    assert (result.status, result.summary) == ("partial", "first")
    assert "it got a message after this report" in result.error


def test_a_sub_agent_that_was_told_something_and_is_stopped_then_is_stopped(tmp_path: Path) -> None:
    script = delegating(hang(say("never ends"), chunks=1), report(summary="went on"))

    async def main() -> None:
        with ScriptedServer(by_brief(script)) as server:
            async with a_host(tmp_path, server) as host:
                session = await host.new_session()
                await session.send(Submit(message=user("do it")))
                async with anyio.create_task_group() as tasks:

                    async def stop_it(child: str) -> None:
                        await session.send(Steer(message=user("be quick"), to=child))
                        await session.send(Interrupt(to=child))

                    def hear(event: ev.Event) -> None:
                        if isinstance(event, ev.SubagentEvent) and isinstance(event.event, ev.StepStarted):
                            stop()
                            tasks.start_soon(stop_it, event.child)

                    stop = session.listen(hear)
                    with anyio.fail_after(20):
                        finished = await run_until_idle(session)
                assert finished is not None
                assert (finished.outcome, finished.answer) == ("done", "All done.")
                (result,) = results_of(host, session)
                assert (result.result.status, result.result.error) == ("error", "interrupted by the user")
                assert len(of_type(host, result.child, ev.TurnStarted)) == 1
                assert len(of_type(host, result.child, ev.InputWithdrawn)) == 1

    anyio.run(main)


def test_a_log_that_names_a_place_outside_for_the_brief_leads_nothing_there(tmp_path: Path) -> None:
    workspace = tmp_path / "inner" / "ws"
    workspace.mkdir(parents=True)
    script = delegating(report())
    main, child = logs_of(workspace, script)
    cut(main, "subagent.finished")
    shutil.rmtree(child.parent)
    name = child.parent.name
    main.write_text(main.read_text().replace(f'"agent_id":"{name}"', '"agent_id":"../../../outside"'))
    assert [result.status for result in gone_on_with(workspace, main, script)["results"]] == ["ok"]
    main.write_text(main.read_text().replace(f'"child":"{name}"', '"child":"../../../outside"'))
    cut(main, "subagent.finished")
    seen = gone_on_with(workspace, main, script)
    assert [result.status for result in seen["results"]] == ["error"]
    assert "brief_not_kept" in [notice.code for notice in seen["notices"]]
    assert not list(tmp_path.rglob("outside*"))


def test_a_turn_that_is_gone_on_with_has_its_time_for_sub_agents_too(tmp_path: Path) -> None:
    script = delegating(report())
    main, _ = logs_of(tmp_path, script)
    cut(main, "subagent.started")
    lines = [line.replace('"ts":', '"ts":0.5,"was":') for line in main.read_text().splitlines(keepends=True)]
    main.write_text("".join(lines))
    seen = gone_on_with(tmp_path, main, script, max_turn_seconds=600)
    assert [result.status for result in seen["results"]] == ["ok"]


def test_in_a_window_without_room_for_it_nothing_is_delegated(tmp_path: Path) -> None:
    async def main() -> None:
        with ScriptedServer(by_brief(delegating(report()))) as server:
            async with a_host(tmp_path, server, context_window=4096) as host:
                session = await host.new_session()
                await do(session)
                assert children_of(host, session) == []
                (denied,) = of_type(host, session.state.session, ev.ToolFinished)
                assert (denied.status, "Do the work yourself" in denied.content) == ("denied", True)

    anyio.run(main)


def test_in_short_work_a_sub_agents_is_as_short(tmp_path: Path) -> None:
    reads = [call("read", path=f"{number}.txt") for number in range(30)]
    for number in range(30):
        (tmp_path / f"{number}.txt").write_text(f"{number}")

    async def main() -> None:
        with ScriptedServer(by_brief(delegating(*reads))) as server:
            async with a_host(tmp_path, server) as host:
                session = await host.new_session()
                await session.record(ev.WorkChanged(mode="bounded"))
                await do(session)
                (result,) = results_of(host, session)
                assert (result.steps, result.result.status) == (15, "partial")

    anyio.run(main)
