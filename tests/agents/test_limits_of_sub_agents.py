"""Limits: what a sub-agent may use, and how each of its ends reaches whoever asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from agents_kit import a_host, by_brief, chats, children_of, do, of_type, report, results_of, use

from lmagent.core import events as ev
from lmagent.core.commands import Approve, Continue, Interrupt, SetMode, Steer, Submit
from lmagent.core.messages import user
from lmagent.core.work import Budget, ChildResult
from lmagent.engine.lane import run_until_idle
from lmagent.engine.session import Session
from lmagent.testing import ScriptedServer
from lmagent.testing.script import Behaviour, call, hang, say, status

Script = dict[str, list[Behaviour]]


def delegating(*child: Behaviour, **more: Any) -> Script:
    """A main session that delegates the part, and the sub-agent's script."""
    return {"": [use("delegate", objective="the part", **more), say("All done.")], "the part": list(child)}


def played(workspace: Path, script: Script, **flags: Any) -> tuple[ChildResult, dict[str, Any]]:
    """The result of the one sub-agent, and what else is asked about."""
    seen: dict[str, Any] = {}

    async def main() -> None:
        with ScriptedServer(by_brief(script), strict=True) as server:
            async with a_host(workspace, server, **flags) as host:
                session = await host.new_session()
                seen["finished"] = await do(session)
                seen["result"] = results_of(host, session)[0].result
                child = children_of(host, session)[0]
                seen["child"] = list(host.store.read(child))
                seen["main"] = list(host.store.read(session.state.session))

    anyio.run(main)
    return seen["result"], seen


def last(events: list[ev.DurableEvent]) -> ev.TurnFinished:
    assert isinstance(events[-1], ev.TurnFinished)
    return events[-1]


def test_without_a_report_it_is_asked_twice_and_its_answer_is_then_a_partial_result(tmp_path: Path) -> None:
    result, seen = played(tmp_path, delegating(say("The answer is 42.")))
    assert (result.status, result.summary, result.iterations) == ("partial", "The answer is 42.", 3)
    nudges = [event for event in seen["child"] if isinstance(event, ev.MessageAdded) and event.origin == "nudge"]
    assert len(nudges) == 2
    assert seen["finished"].outcome == "done"


@pytest.mark.parametrize(
    ("reply", "expected", "reason"),
    [
        (say("BLOCKED: no network here"), "blocked", "no network here"),
        (say("Which of the two files do you mean?"), "blocked", "no user can answer inside a sub-agent: Which of the two"),
        (status(401), "error", "key"),
    ],
)
def test_each_end_of_a_sub_agent_is_a_defined_result(
    tmp_path: Path, reply: Behaviour, expected: str, reason: str
) -> None:
    script = delegating(reply)
    result, seen = played(tmp_path, script)
    assert result.status == expected
    assert reason in result.error
    last(seen["child"])
    assert seen["finished"].outcome == "done"


def test_it_may_make_as_many_steps_as_its_depth_leaves_it(tmp_path: Path) -> None:
    for number in range(30):
        (tmp_path / f"{number}.txt").write_text(f"{number}")
    reads = [call("read", path=f"{number}.txt") for number in range(30)]
    result, seen = played(tmp_path, delegating(*reads))
    assert result.iterations == 21
    assert (result.status, last(seen["child"]).cause) == ("partial", "iterations")


def test_at_the_greatest_depth_no_more_is_delegated(tmp_path: Path) -> None:
    script = {
        "": [use("delegate", objective="outer"), say("All done.")],
        "outer": [use("delegate", objective="inner"), report(summary="outer")],
    }
    _, seen = played(tmp_path, script, agent_max_depth=1)
    denied = [event for event in seen["child"] if isinstance(event, ev.ToolFinished) and event.status == "denied"]
    assert "sub-agents may be nested 1 deep" in denied[0].content


def test_a_sub_agent_can_have_one_of_its_own(tmp_path: Path) -> None:
    script = {
        "": [use("delegate", objective="outer"), say("All done.")],
        "outer": [use("delegate", objective="inner"), report(summary="outer done")],
        "inner": [call("write", path="x.txt", content="x\n"), report(summary="inner done", artifacts=["x.txt"])],
    }
    result, seen = played(tmp_path, script)
    assert (result.status, result.iterations) == ("ok", 4)
    (finished,) = [event for event in seen["main"] if isinstance(event, ev.SubagentFinished)]
    assert finished.steps == 4
    assert any(isinstance(event, ev.FilesChanged) for event in seen["main"]), "the change can be taken back here"


def test_only_sub_agents_report(tmp_path: Path) -> None:
    async def main() -> None:
        with ScriptedServer([report(), say("All done.")], strict=True) as server:
            async with a_host(tmp_path, server) as host:
                session = await host.new_session()
                await do(session)
                (finished,) = of_type(host, session.state.session, ev.ToolFinished)
                assert finished.status == "denied"
                assert "report_result" not in str(chats(server)[0])

    anyio.run(main)


def test_what_sub_agents_use_counts_for_the_budget_of_whoever_asked(tmp_path: Path) -> None:
    for number in range(30):
        (tmp_path / f"{number}.txt").write_text(f"{number}")
    reads = [call("read", path=f"{number}.txt") for number in range(30)]

    async def main() -> None:
        with ScriptedServer(by_brief(delegating(*reads)), strict=True) as server:
            async with a_host(tmp_path, server) as host:
                session = await host.new_session()
                await session.record(ev.WorkChanged(mode="normal", budget=Budget(steps=6)))
                finished = await do(session)
                (result,) = results_of(host, session)
                assert result.steps == 5
                assert "6 steps" in result.result.error
                assert (finished.outcome, finished.cause) == ("limit", "iterations")
                assert len(chats(server)) == 6

    anyio.run(main)


@pytest.mark.parametrize("flag", ["max_session_tokens", "max_turn_tokens"])
def test_tokens_are_one_budget_too(tmp_path: Path, flag: str) -> None:
    for number in range(30):
        (tmp_path / f"{number}.txt").write_text(f"{number}")
    reads = [call("read", path=f"{number}.txt") for number in range(30)]
    result, seen = played(tmp_path, delegating(*reads), **{flag: 20_000})
    assert "20000 tokens" in result.error
    assert result.iterations < 12
    assert seen["finished"].outcome == "limit"


async def _until(session: Session, wanted: Any) -> None:
    """Look again after everything that happens in the session or in a sub-agent of it."""
    with anyio.fail_after(20):
        while not wanted():
            news = anyio.Event()
            stop = session.listen(lambda _, news=news: news.set())
            await news.wait()
            stop()


async def _cut_off(session: Session, *, step: int) -> None:
    """Let it work until its sub-agent is at a step, when the program ends."""
    await session.send(Submit(message=user("do it")))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: run_until_idle(session, resumable=True))
        await _until(session, lambda: any(child.state.step == step for child in session.children.values()))
        tasks.cancel_scope.cancel()


def interrupting(workspace: Path, script: Script, act: Any) -> dict[str, Any]:
    """What comes of a session to which something happens while its sub-agent works."""
    seen: dict[str, Any] = {}

    async def main() -> None:
        with ScriptedServer(by_brief(script)) as server:
            async with a_host(workspace, server, attended=True) as host:
                session = await host.new_session()
                await session.send(Submit(message=user("do it")))
                async with anyio.create_task_group() as tasks:

                    async def run() -> None:
                        seen["finished"] = await run_until_idle(session)

                    tasks.start_soon(run)
                    await _until(session, lambda: session.children)
                    (child,) = session.children.values()
                    await act(session, child)
                seen["session"], seen["result"] = session, results_of(host, session)[0].result
                seen["child"] = list(host.store.read(children_of(host, session)[0]))
                seen["main"] = list(host.store.read(session.state.session))
                seen["open"] = set(host.sessions)

    anyio.run(main)
    return seen


def test_a_sub_agent_alone_can_be_stopped_and_its_result_says_so(tmp_path: Path) -> None:
    async def act(session: Session, child: Session) -> None:
        await _until(session, lambda: child.running and child.state.step == 1)
        await session.send(Interrupt(to=child.state.session))

    seen = interrupting(tmp_path, delegating(hang(say("never ends"), chunks=1)), act)
    assert (seen["result"].status, seen["result"].error) == ("error", "interrupted by the user")
    assert (seen["finished"].outcome, seen["finished"].answer) == ("done", "All done.")
    assert last(seen["child"]).outcome == "interrupted"


def test_an_interrupt_of_the_session_stops_its_sub_agents_and_closes_their_logs(tmp_path: Path) -> None:
    async def act(session: Session, child: Session) -> None:
        await _until(session, lambda: child.running and child.state.step == 1)
        await session.send(Interrupt())

    seen = interrupting(tmp_path, delegating(hang(say("never ends"), chunks=1)), act)
    assert seen["result"].status == "error"
    assert "interrupted" in seen["result"].error
    assert seen["finished"].outcome == "interrupted"
    assert last(seen["child"]).outcome == "interrupted"
    (call_end,) = [event for event in seen["main"] if isinstance(event, ev.ToolFinished)]
    assert "What its sub-agents have done till then stands" in call_end.content
    assert len(seen["open"]) == 1, "the sub-agent's session is closed"


def test_words_for_a_sub_agent_reach_it_while_it_works(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a\n")
    script = delegating(call("write", path="b.txt", content="b\n"), report())

    async def act(session: Session, child: Session) -> None:
        await _until(session, lambda: child.state.approvals)
        await session.send(Steer(message=user("be quick"), to=child.state.session))
        (approval,) = child.state.approvals
        await session.send(Approve(approval=approval, approved=True))

    script[""][0] = use("delegate", objective="the part")
    seen = interrupting_in("normal", tmp_path, script, act)
    steered = [event for event in seen["child"] if isinstance(event, ev.MessageAdded) and event.origin == "steer"]
    assert "be quick" in steered[0].message.text
    assert (tmp_path / "b.txt").exists()


def interrupting_in(mode: Any, workspace: Path, script: Script, act: Any) -> dict[str, Any]:
    async def first(session: Session, child: Session) -> None:
        await act(session, child)

    async def main_mode(session: Session, child: Session) -> None:
        await session.send(SetMode(mode=mode))
        assert child.state.mode == mode, "a change of the mode reaches who is at work"
        await first(session, child)

    return interrupting(workspace, script, main_mode)


def test_what_is_granted_to_a_sub_agent_for_the_session_holds_for_all_that_work_with_it(tmp_path: Path) -> None:
    script = delegating(
        call("write", path="b.txt", content="b\n"), call("write", path="c.txt", content="c\n"), report()
    )
    script[""].insert(1, call("write", path="d.txt", content="d\n"))

    async def act(session: Session, child: Session) -> None:
        await _until(session, lambda: child.state.approvals)
        (approval,) = child.state.approvals
        await session.send(Approve(approval=approval, approved=True, scope="session"))

    seen = interrupting_in("normal", tmp_path, script, act)
    assert seen["finished"].outcome == "done"
    assert all((tmp_path / name).exists() for name in ("b.txt", "c.txt", "d.txt"))
    assert seen["session"].state.grants == ["write"]


def test_unattended_what_would_be_asked_is_denied(tmp_path: Path) -> None:
    script = delegating(call("write", path="b.txt", content="b\n"), report("blocked", "could not write"))
    result, _ = played(tmp_path, script, permission_mode="normal")
    assert result.status == "blocked"
    assert not (tmp_path / "b.txt").exists()


def test_a_session_that_is_told_something_new_after_a_crash_ends_its_sub_agents_first(tmp_path: Path) -> None:
    async def main() -> None:
        script = delegating(call("write", path="b.txt", content="b\n"), hang(say("never ends"), chunks=1))
        script[""] = [script[""][0], say("All done.")]
        with ScriptedServer(by_brief(script)) as server:
            async with a_host(tmp_path, server) as host:
                session = await host.new_session()
                await _cut_off(session, step=2)
                name = session.state.session
                assert not results_of(host, session)
            async with a_host(tmp_path, server) as host:
                session = await host.open_session(name)
                await session.send(Submit(message=user("forget it")))
                finished = await run_until_idle(session)
                assert finished is not None
                (result,) = results_of(host, session)
                assert result.result.status == "error"
                assert result.result.artifacts == ("b.txt",)
                assert last(list(host.store.read(result.child))).outcome == "interrupted"

    anyio.run(main)


def test_a_session_that_is_continued_after_the_program_ended_goes_on_with_its_sub_agent(tmp_path: Path) -> None:
    async def main() -> None:
        hanging = delegating(call("write", path="b.txt", content="b\n"), hang(say("never ends"), chunks=1))
        with ScriptedServer(by_brief(hanging)) as server:
            async with a_host(tmp_path, server) as host:
                session = await host.new_session()
                await _cut_off(session, step=2)
                name = session.state.session
        whole = delegating(call("write", path="b.txt", content="b\n"), report(artifacts=["b.txt"]))
        with ScriptedServer(by_brief(whole)) as server:
            async with a_host(tmp_path, server) as host:
                session = await host.open_session(name)
                await session.send(Continue())
                finished = await run_until_idle(session)
                assert finished is not None
                assert finished.outcome == "done"
                (result,) = results_of(host, session)
                assert (result.result.status, result.result.artifacts) == ("ok", ("b.txt",))

    anyio.run(main)


def test_what_its_session_may_not_do_while_it_plans_its_sub_agents_may_not_either(tmp_path: Path) -> None:
    async def main() -> None:
        script = delegating(call("write", path="b.txt", content="b\n"), report("blocked", "may not write"))
        with ScriptedServer(by_brief(script), strict=True) as server:
            async with a_host(tmp_path, server) as host:
                session = await host.new_session()
                await session.record(ev.WorkChanged(mode="plan"))
                await do(session)
                (child,) = children_of(host, session)
                first, *_ = of_type(host, child, ev.ToolFinished)
                assert first.status == "denied", first.content
                assert not (tmp_path / "b.txt").exists()

    anyio.run(main)


def test_a_mode_that_asks_less_than_its_sessions_is_not_taken_by_a_sub_agent(tmp_path: Path) -> None:
    async def act(session: Session, child: Session) -> None:
        await _until(session, lambda: child.state.approvals)
        await child.send(SetMode(mode="auto"))
        assert child.state.mode == "normal"
        (approval,) = child.state.approvals
        await session.send(Approve(approval=approval, approved=False))

    script = delegating(call("write", path="b.txt", content="b\n"), report("blocked", "no"))
    interrupting_in("normal", tmp_path, script, act)
    assert not (tmp_path / "b.txt").exists()


def test_a_checkout_that_leads_the_briefs_elsewhere_gets_none_and_the_work_goes_on(tmp_path: Path) -> None:
    workspace, elsewhere = tmp_path / "ws", tmp_path / "elsewhere"
    (workspace / ".lmagent").mkdir(parents=True)
    elsewhere.mkdir()
    (workspace / ".lmagent" / "agents").symlink_to(elsewhere)
    result, seen = played(workspace, delegating(report(summary="Done all the same.")))
    assert result.status == "ok"
    assert list(elsewhere.iterdir()) == []
    assert [event.code for event in seen["main"] if isinstance(event, ev.Notice)] == ["brief_not_kept"] * 2


def test_one_whose_session_is_open_elsewhere_is_an_error_and_the_session_goes_on(tmp_path: Path) -> None:
    async def main() -> None:
        hanging = delegating(hang(say("never ends"), chunks=1))
        with ScriptedServer(by_brief(hanging)) as server:
            async with a_host(tmp_path, server) as host:
                session = await host.new_session()
                await _cut_off(session, step=1)
                name, (child,) = session.state.session, children_of(host, session)
            async with a_host(tmp_path, server) as other, a_host(tmp_path, server) as host:
                await other.open_session(child)
                session = await host.open_session(name)
                await session.send(Continue())
                finished = await run_until_idle(session)
                assert finished is not None
                assert finished.outcome == "done"
                (result,) = results_of(host, session)
                assert result.result.status == "error"
                assert "another process" in result.result.error or "open" in result.result.error

    anyio.run(main)


def test_there_are_no_sub_agents_where_the_settings_want_none(tmp_path: Path) -> None:
    async def main() -> None:
        with ScriptedServer([say("Hello.")], strict=True) as server:
            async with a_host(tmp_path, server, enable_sub_agents=False) as host:
                await do(await host.new_session())
                assert "delegate" not in str(chats(server)[0])

    anyio.run(main)
