"""On screen: what a person sees and answers of sub-agents, in a terminal, in a pipe, and in the REPL's view."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from agents_kit import a_host, by_brief, report, use

from lmagent.app.slash import SlashContext, dispatch
from lmagent.app.subagents.nested import NestedLines
from lmagent.core import events as ev
from lmagent.core.commands import Approve, Submit
from lmagent.core.errors import ConfigError
from lmagent.core.messages import user
from lmagent.core.view import View, reduce
from lmagent.engine.lane import run_until_idle
from lmagent.testing import ScriptedServer
from lmagent.testing.script import call, say

SCRIPT = {
    "": [use("delegate", objective="write it"), say("All done.")],
    "write it": [call("write", path="a.txt", content="hello\n"), report(summary="It says hello.")],
}


def run(workspace: Path, *options: str) -> subprocess.CompletedProcess[str]:
    with ScriptedServer(by_brief(SCRIPT)) as server:
        flags = ("-w", str(workspace), "--base-url", server.base_url, "--permission", "auto", "-m", "scripted")
        return subprocess.run(
            [sys.executable, "-m", "lmagent", *flags, *options, "do it"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env={**os.environ, "HOME": str(workspace)},
            cwd=workspace,
            timeout=60,
            check=False,
        )


def test_a_terminal_shows_them_indented_and_short(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    assert any("▸ sub-agent: write it" in line for line in lines)
    assert any(line.startswith("  ✓ write a.txt") for line in lines)
    assert any("◂ sub-agent ok: It says hello." in line for line in lines)
    assert done.stdout.strip() == "All done."


def test_json_lines_nest_their_events_under_the_call(tmp_path: Path) -> None:
    done = run(tmp_path, "--json")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    (started,) = [event for event in events if event["type"] == "subagent.started"]
    nested = [event for event in events if event["type"] == "subagent.event"]
    assert {event["child"] for event in nested} == {started["child"]}
    assert {event["call_id"] for event in nested} == {started["call_id"]}
    shown = [event["event"]["type"] for event in nested]
    assert shown[:3] == ["session.created", "session.renamed", "context.inherited"], "its whole log"
    assert nested[-1]["event"]["type"] == "turn.finished"


def test_an_approval_of_a_sub_agent_stands_in_the_view_of_its_session_and_is_answered_there(tmp_path: Path) -> None:
    async def main() -> None:
        with ScriptedServer(by_brief(SCRIPT)) as server:
            async with a_host(tmp_path, server, attended=True, permission_mode="normal") as host:
                session = await host.new_session()
                views, asked, said = [View()], anyio.Event(), list[str]()
                lines = NestedLines()

                def listen(event: ev.Event) -> None:
                    views.append(reduce(views[-1], event))
                    if (line := lines(event)) is not None:
                        said.append(line[1])
                    if views[-1].approvals:
                        asked.set()

                session.listen(listen)
                await session.send(Submit(message=user("do it")))
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(run_until_idle, session)
                    await asked.wait()
                    context = SlashContext(host, session, views[-1])
                    listed = (await dispatch("/agents", context)).text
                    assert "running · step 1   write it" in listed
                    name = listed.split()[0]
                    assert (await dispatch(f"/steer {name[-6:]} be quick", context)).text == f"told {name}"
                    with pytest.raises(ConfigError, match="no sub-agent at work is called 'nobody'"):
                        await dispatch("/steer nobody be quick", context)
                    with pytest.raises(ConfigError, match="needs a sub-agent and words"):
                        await dispatch(f"/steer {name}", context)
                    await session.send(Approve(approval=views[-1].approvals[0].id, approved=True))
                assert not views[-1].approvals
                assert (tmp_path / "a.txt").exists()
                assert said[0] == "▸ sub-agent: write it"
                assert "  ✓ write a.txt (1 line)" in said
                assert said[-1] == "◂ sub-agent ok: It says hello."

    anyio.run(main)


def test_stopping_one_by_its_name_leaves_the_session_at_work(tmp_path: Path) -> None:
    async def main() -> None:
        with ScriptedServer(by_brief(SCRIPT)) as server:
            async with a_host(tmp_path, server, attended=True, permission_mode="normal") as host:
                session = await host.new_session()
                asked = anyio.Event()
                session.listen(
                    lambda event: asked.set() if isinstance(ev.innermost(event)[1], ev.ApprovalRequested) else None
                )
                await session.send(Submit(message=user("do it")))
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(run_until_idle, session)
                    await asked.wait()
                    (child,) = session.children
                    await dispatch(f"/stop {child}", SlashContext(host, session, View()))
                assert session.state.last_outcome == "done"
                (result,) = session.state.work.results.values()
                assert result.error == "interrupted by the user"
                assert not (tmp_path / "a.txt").exists()

    anyio.run(main)
