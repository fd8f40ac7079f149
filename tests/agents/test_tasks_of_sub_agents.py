"""What was given to sub-agents is seen with the other tasks, and holds nothing up."""

from __future__ import annotations

from pathlib import Path

import anyio
from agents_kit import a_host, by_brief, children_of, do, report, use

from lmagent.app.slash import SlashContext, dispatch
from lmagent.core.commands import SetWork
from lmagent.core.view import View
from lmagent.testing import ScriptedServer
from lmagent.testing.script import say

MANIFEST = [
    {"task_id": "parser", "objective": "write the parser", "deliverable": {"type": "report", "description": "words"}},
    {
        "task_id": "docs",
        "objective": "write the docs",
        "depends_on": ["parser"],
        "deliverable": {"type": "file", "description": "the docs", "path": "docs.md"},
    },
]


def test_tasks_of_a_manifest_are_listed_with_the_others_and_do_not_hold_deep_work_up(tmp_path: Path) -> None:
    script = {
        "": [
            use("manage_tasks", action="create", tasks=[{"title": "mine"}]),
            use("decompose", manifest=MANIFEST),
            use("manage_tasks", action="list"),
            use("manage_tasks", action="complete", task_id="t1", result="done"),
            say("All done."),
        ],
        "write the parser": [report(summary="It parses.")],
        "write the docs": [report(summary="Written.")] * 3,
    }

    async def main() -> None:
        with ScriptedServer(by_brief(script), strict=True) as server:
            async with a_host(tmp_path, server) as host:
                session = await host.new_session()
                await session.send(SetWork(mode="deep", by="test"))
                finished = await do(session)
                assert finished.outcome == "done", finished.reason
                first, second = children_of(host, session)
                listed = str(server.requests[-2].body["messages"][-1]["content"])
                assert "0 of 1 done" in listed
                assert "Given to sub-agents (2 of 2 reported" in listed
                assert f"- parser [ok] write the parser (sub-agent {first}; It parses.)" in listed
                assert f"- docs [partial] write the docs (sub-agent {second}; " in listed
                assert list(session.state.work.tasks) == ["t1"], "they are in no list that anybody can change"
                shown = (await dispatch("/todo", SlashContext(host, session, View()))).text
                assert "1 of 1 done" in shown
                assert "- parser [ok] write the parser" in shown

    anyio.run(main)


def test_without_sub_agents_nothing_is_said_of_them(tmp_path: Path) -> None:
    async def main() -> None:
        with ScriptedServer([use("manage_tasks", action="list"), say("None.")], strict=True) as server:
            async with a_host(tmp_path, server) as host:
                session = await host.new_session()
                await do(session)
                assert "There are no tasks." in str(server.requests[-1].body["messages"][-1]["content"])
                assert (await dispatch("/todo", SlashContext(host, session, View()))).text == "there are no tasks yet"

    anyio.run(main)
