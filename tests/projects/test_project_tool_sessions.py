"""A project's tools in a session: in the prompt, under the permission rules, and known to undo."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace
from tools_kit import GUIDE, AgentFolder

from lmagent.app.options import HostOptions
from lmagent.app.wiring import open_host
from lmagent.core import events as ev
from lmagent.core.commands import Submit, Undo
from lmagent.core.errors import ConfigError
from lmagent.core.messages import user
from lmagent.engine.lane import run_until_idle
from lmagent.policy.gate import Rules
from lmagent.projects.tools.own import own_tools
from lmagent.testing import ScriptedServer
from lmagent.testing.script import call, say


def session_of(
    agent: AgentFolder, script: list[Any], *, mode: str = "auto", undo: bool = False, allow: tuple[str, ...] = ()
) -> tuple[list[dict[str, Any]], list[ev.DurableEvent]]:
    """Return the requests and the events of one turn in the agent's workspace."""

    async def main() -> tuple[list[dict[str, Any]], list[ev.DurableEvent]]:
        with ScriptedServer([*script, say("Done.")]) as server:
            given = {"llm_url": server.base_url, "permission_mode": mode}
            host = await open_host(HostOptions(agent.workspace, given), say=lambda _: None)
            try:
                agent.gets(builtin=tuple(host.toolbox))
                for tool in (await own_tools(agent.folder, agent.entries, agent.place)).tools:
                    host.toolbox.add(tool)
                host.rules = replace(host.rules, allow=allow)
                session = await host.new_session()
                await session.send(Submit(message=user("work")))
                await run_until_idle(session)
                if undo:
                    await session.send(Undo())
                    await run_until_idle(session)
                events = list(host.store.read(session.state.session))
            finally:
                await host.aclose()
            return [request.body for request in server.chats], events

    return anyio.run(main)


def results(events: list[ev.DurableEvent]) -> list[ev.ToolFinished]:
    return [event for event in events if isinstance(event, ev.ToolFinished)]


@pytest.fixture
def agent(tmp_path: Path) -> AgentFolder:
    agent = AgentFolder(tmp_path)
    for file in GUIDE.glob("*.js"):
        agent.add(f"tools/{file.name}", file.read_text())
    return agent


def test_a_turn_uses_the_tools_and_outlives_those_that_fail(agent: AgentFolder) -> None:
    agent.add("tools/loops.py", "def loops() -> None:\n    while True: pass\n", timeout=1)
    agent.add("tools/read_file.py", "def read_file(path: str) -> str:\n    return f'own {path}'\n")
    script = [
        call("calculator", expression="6*7"),
        call("loops"),
        call("search_papers", query="owls", limit="two"),
        call("read_file", path="a.txt"),
        call("calculator", expression="oh no"),
    ]
    requests, events = session_of(agent, script)
    names = [tool["function"]["name"] for tool in requests[0]["tools"]]
    assert {"calculator", "execute_code", "search_papers", "loops", "read_file", "read"} <= set(names)
    found = [(event.status, event.content) for event in results(events)]
    assert [status for status, _ in found] == ["ok", "error", "error", "ok", "error"]
    for (_, text), part in zip(
        found,
        (
            '{"result":42}',
            "did not end within 1 s",
            "limit: 'two' is not",
            "own a.txt",
            "Invalid calculation",
        ),
        strict=True,
    ):
        assert part in text
    assert requests[-1]["messages"][-1]["role"] == "tool"


def test_a_tool_is_asked_about_like_a_command_unless_a_rule_allows_it(agent: AgentFolder) -> None:
    agent.gets(env={"OWL_KEY": "hoo"}, hosts=("owls.example",))
    script = [call("calculator", expression="6*7"), call("search_papers", query="owls")]
    _, events = session_of(agent, script, mode="normal", allow=("search_papers",))
    asked = [event for event in events if isinstance(event, ev.ApprovalRequested)]
    assert [event.summary for event in asked] == ['calculator {"expression":"6*7"}']
    assert asked[0].reason == "normal mode asks before running commands"
    assert asked[0].grant == "calculator"
    assert (
        "tools/calculator.js of this agent, in the sandbox, may reach owls.example; it gets OWL_KEY" in asked[0].preview
    )
    assert [event.status for event in results(events)] == ["denied", "ok"]


def test_the_user_is_not_asked_about_a_call_that_would_be_refused(agent: AgentFolder) -> None:
    _, events = session_of(agent, [call("search_papers", query="owls", limit="two")], mode="normal")
    assert not [event for event in events if isinstance(event, ev.ApprovalRequested)]
    assert [event.status for event in results(events)] == ["error"]


def test_files_that_a_tool_wrote_can_be_undone(agent: AgentFolder) -> None:
    agent.add("tools/notes.py", "def notes(text: str) -> None:\n    open('notes.txt', 'w').write(text)\n")
    _, events = session_of(agent, [call("notes", text="hoo")], undo=True)
    (changed,) = (event for event in events if isinstance(event, ev.FilesChanged))
    assert "notes.txt" in str(changed)
    assert not (agent.workspace / "notes.txt").exists()


def test_rules_of_the_settings_and_of_the_agent_may_name_its_own_tools(agent: AgentFolder) -> None:
    agent.write("tools/read_file.py", "def read_file(path: str) -> str:\n    return path\n")
    agent.write(
        "agent.yaml",
        "name: owls\ntools:\n"
        "  - {name: calculator, path: tools/calculator.js}\n  - {name: read_file, path: tools/read_file.py}\n"
        "permissions: {ask: [Calculator, 'Read_File(./secret/)']}\n",
    )

    async def rules(*allow: str) -> Rules:
        given = {"llm_url": "http://127.0.0.1:9", "permission_allow": list(allow)}
        host = await open_host(
            HostOptions(agent.workspace, given, project=agent.folder, agent="owls"), say=lambda _: None
        )
        try:
            return host.parts(host.named).rules
        finally:
            await host.aclose()

    found = anyio.run(rules, "Calculator", "read_file")
    assert found.allow == ("calculator", "read")  # the name of a built-in tool means that tool, as for all agents
    assert found.ask == ("calculator", "read(./secret)")
    with pytest.raises(ConfigError, match="names a tool that does not exist: 'calculater'"):
        anyio.run(rules, "calculater")


def test_an_agent_cannot_change_its_project_that_lies_in_its_workspace(tmp_path: Path) -> None:
    root = tmp_path / "repository" / "agents"
    root.mkdir(parents=True)
    agent, workspace = AgentFolder(root), root.parent
    inner = agent.write("tools/lib/part.py", "PART = 1\n")
    agent.write(
        "agent.yaml", "name: owls\ntype: task-oriented\ntools: [{name: spoil, path: tools/spoil.py}, write, shell]\n"
    )
    agent.write("tools/spoil.py", f"def spoil() -> None:\n    open({str(inner)!r}, 'w').write('bad')\n")
    lines = (
        "echo bad >agents/project/tools/lib/part.py",
        "mv agents other",
        "mv agents/project agents/other",
        "echo fine >agents/free.txt",
    )
    script = [
        call("write", path="agents/project/tools/lib/part.py", content="bad"),
        call("write", path="agents/PROJECT/../project/new.py", content="bad"),
        call("shell", command="; ".join(lines)),
        call("spoil"),
        say("Done."),
    ]

    async def work(url: str) -> list[ev.DurableEvent]:
        given = {"llm_url": url, "permission_mode": "auto"}
        host = await open_host(HostOptions(workspace, given, project=agent.folder, agent="owls"), say=lambda _: None)
        try:
            session = await host.new_session()
            await session.send(Submit(message=user("work")))
            await run_until_idle(session)
            return list(host.store.read(session.state.session))
        finally:
            await host.aclose()

    with ScriptedServer(script) as server:
        done = results(anyio.run(work, server.base_url))
    assert [event.status for event in done] == ["denied", "denied", "ok", "error"]
    assert done[2].content.count("Read-only file system") == 1
    assert done[2].content.count("Device or resource busy") == 2
    assert "Read-only file system" in done[3].content
    assert inner.read_text() == "PART = 1\n"
    assert sorted(path.name for path in root.iterdir()) == ["free.txt", "project", "workspace"]


@pytest.mark.parametrize("place", [".", "files"])
def test_an_agent_does_not_work_in_its_own_folder(agent: AgentFolder, place: str) -> None:
    agent.write("agent.yaml", "name: owls\n")
    options = HostOptions(agent.folder / place, {"llm_url": "http://127.0.0.1:9"}, project=agent.folder, agent="owls")
    (agent.folder / place).mkdir(exist_ok=True)
    with pytest.raises(ConfigError, match="is in the agent's own folder, so it could change its tools"):
        anyio.run(partial(open_host, options, say=lambda _: None))
