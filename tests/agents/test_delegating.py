"""Delegating: a call begins a session of its own, and its result comes back."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
from agents_kit import a_host, by_brief, children_of, do, of_type, report, results_of, use

from lmagent.core import events as ev
from lmagent.testing import ScriptedServer
from lmagent.testing.script import call, say

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
