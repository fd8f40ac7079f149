"""The sub-agents, the skills and the MCP servers of an agent project: its own, and no others."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import anyio
import pytest
from testkit import tinymcp

from lmagent.app.agentproject import abilities
from lmagent.app.host import Host
from lmagent.app.options import HostOptions
from lmagent.app.wiring import open_host
from lmagent.config.trust import trust
from lmagent.core.commands import Submit
from lmagent.core.errors import ConfigError
from lmagent.core.messages import user
from lmagent.engine.lane import run_until_idle
from lmagent.projects.agentfiles import agents_of
from lmagent.projects.load import load_folder
from lmagent.testing import ScriptedServer, call, say

YAML = """\
name: Desk
tools: [read, {name: words, path: tools/words.py}]
agents: [checker, helper]
skills: [letters]
env: {DESK_TOKEN: {secret: true}}
mcp_servers:
  tiny: {command: python3, args: [servers/tinymcp.py], env: {DESK_TOKEN: "${DESK_TOKEN}"}}
"""
FILES = {
    "tools/words.py": "def words(text: str) -> int:\n    return len(text.split())\n",
    "agents/checker.md": "---\ntools: words, grep\n---\nYou check.\n",
    "agents/helper.toml": """\
name = "Helper"
type = "task-oriented"
system_prompt = "You help."
[permissions]
allow = ["shell"]
""",
    "skills/letters/SKILL.md": "---\ndescription: How letters are written\n---\nBegin with Dear.\n",
    "skills/other/SKILL.md": "---\ndescription: Not chosen\n---\nNo.\n",
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, value in (("HOME", "home"), ("XDG_CONFIG_HOME", "home/.config"), ("AGENT_DATA_DIR", "data")):
        monkeypatch.setenv(name, str(tmp_path / value))
    monkeypatch.setenv("DESK_TOKEN", "opensesame")
    root = tmp_path / "desk"
    for name, text in {"agent.yaml": YAML, **FILES}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "servers").mkdir()
    tinymcp.put(root / "servers")
    (tmp_path / "workspace").mkdir()
    shutil.copy(root / "servers" / tinymcp.ABOUT, tmp_path / "workspace")
    return root


def played(project: Path, script: list[Any], do: Any = None) -> list[dict[str, Any]]:
    """Return the bodies of the model's requests in a session of the project's agent."""

    async def work(url: str) -> None:
        flags = {"llm_url": url, "permission_mode": "auto"}
        options = HostOptions(project.parent / "workspace", flags, project=project, agent="desk")
        host = await open_host(options, say=lambda _: None)
        try:
            if do is not None:
                do(host)
            session = await host.new_session()
            await session.send(Submit(message=user("work")))
            await run_until_idle(session)
        finally:
            await host.aclose()

    with ScriptedServer(script) as server:
        anyio.run(work, server.base_url)
        return [chat.body for chat in server.chats]


def tools_of(body: dict[str, Any]) -> set[str]:
    return {tool["function"]["name"] for tool in body["tools"]}


def test_an_agent_gives_tasks_to_its_own_sub_agents(project: Path) -> None:
    script = [
        call("delegate", objective="Count", agent="checker"),
        call("words", text="one two"),
        call("report_result", status="ok", summary="Two words."),
        call("delegate", objective="Help", agent="helper"),
        call("report_result", status="ok", summary="Helped."),
        call("delegate", objective="Look", agent="stranger"),
        say("Done."),
    ]
    bodies = played(project, script)
    assert {"read", "words", "delegate", "skill", "use_tool"} <= tools_of(bodies[0])
    assert "agent: checker: ; helper: Helper." in json.dumps(bodies[0]["tools"])
    assert bodies[1]["messages"][0]["content"].startswith("You check.")
    assert tools_of(bodies[1]) == {"words", "grep", "read_artifact", "recall", "report_result"}
    assert bodies[2]["messages"][-1]["content"] == "2"
    assert tools_of(bodies[4]) == tools_of(bodies[0]) | {"report_result"}  # without a choice, those of its parent
    assert "there is no agent named 'stranger' here" in bodies[-1]["messages"][-1]["content"]


def test_a_project_has_no_agents_servers_and_skills_of_others(project: Path, tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    for place, text in (
        (workspace / ".lmagent" / "agents" / "stranger.md", "---\nname: stranger\n---\nHello.\n"),
        (tmp_path / "home" / ".config" / "lmagent" / "agents" / "mine.md", "---\nname: mine\n---\nHello.\n"),
        (workspace / ".lmagent" / "skills" / "theirs" / "SKILL.md", "---\ndescription: x\n---\nx\n"),
        (workspace / ".mcp.json", '{"mcpServers": {"theirs": {"command": "true"}}}'),
    ):
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    trust(tmp_path / "data", workspace)

    def look(host: Host) -> None:
        assert [agent.name for agent in host.registry.agents] == ["desk", "checker", "helper"]
        assert all(not agent.allow for agent in host.registry.agents)
        assert host.registry.skills is not None
        assert [skill.name for skill in host.registry.skills.shelf.all()] == ["letters"]
        assert host.registry.mcp is not None
        assert [state.spec.name for state in host.registry.mcp.states()] == ["tiny"]

    played(project, [say("Done.")], look)


def test_an_agent_reads_its_skills(project: Path) -> None:
    (first, second) = played(project, [call("skill", name="letters"), say("Done.")])
    assert "- letters: How letters are written" in json.dumps(first["messages"])
    assert second["messages"][-1]["content"].startswith("Begin with Dear.")


def test_an_agent_calls_its_servers_in_the_sandbox_with_the_variables_that_they_name(project: Path) -> None:
    if shutil.which("bwrap") is None:
        pytest.skip("needs bubblewrap")
    script = [
        call("use_tool", name="describe", arguments={"name": "tiny"}),
        call("use_tool", name="tiny_echo", arguments={"message": "hoo"}),
        say("Done."),
    ]
    seen = list[str]()

    def look(host: Host) -> None:
        assert host.registry.mcp is not None
        (state,) = host.registry.mcp.states()
        seen.extend((state.confinement, state.spec.env["DESK_TOKEN"], *host.registry.mcp.secrets))

    bodies = played(project, script, look)
    assert seen[0].startswith("sandbox, paths: ")
    assert seen[1] == "opensesame"
    assert "opensesame" in seen[2:]
    assert "- tiny: " in json.dumps(bodies[0]["messages"])
    assert "tiny_echo" in json.dumps(bodies[1]["messages"][-1])
    assert "hoo" in bodies[2]["messages"][-1]["content"]
    assert "opensesame" not in json.dumps(bodies)


def test_sub_agents_skills_and_servers_are_shown_before_a_run(project: Path) -> None:
    shown = list(abilities(load_folder(project)))
    assert shown[-5:] == [
        "sub-agent    checker: words, grep",
        "sub-agent    helper: the same tools",
        "skills       letters",
        "MCP server   tiny: runs python3 servers/tinymcp.py in the sandbox, without network; it gets DESK_TOKEN",
        "variables    DESK_TOKEN: its own tools get their values",
    ]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("[checker,", "[cheker,", "agent.yaml:3:10: there is no agents/cheker.md"),
        ("[checker,", "['../x',", "agent.yaml:3:10: agents: the text has not the right form"),
        ("[checker,", "[helper,", "agent.yaml:3:18: two agents are named 'helper'"),
        ("[letters]", "[letter]", "agent.yaml:4:10: there is no skills/letter/SKILL.md"),
        ("command: python3", "comand: python3", "agent.yaml:7:10: there is no key 'comand' here"),
        ("  tiny:", "  ti ny:", "agent.yaml:7:3: 'ti ny' cannot be a key here"),
        ("command: python3, ", "", "agent.yaml:7:3: tiny: it has neither a command nor a url"),
        ('"${DESK_TOKEN}"', "sesame", "agent.yaml:7:3: tiny: the value of DESK_TOKEN is written in it"),
        ('"${DESK_TOKEN}"', '"${HOME}"', "agent.yaml:7:3: tiny: the variable HOME is not set"),
        ("command: python3", "unconfined: true", "agent.yaml:7:10: there is no key 'unconfined' here"),
    ],
)
def test_a_part_that_cannot_be_used_is_named_with_its_line(project: Path, old: str, new: str, said: str) -> None:
    assert old in YAML
    (project / "agent.yaml").write_text(YAML.replace(old, new, 1))
    with pytest.raises(ConfigError) as wrong:
        played(project, [])
    assert said in wrong.value.message


def test_a_faulty_file_of_a_sub_agent_is_named(project: Path) -> None:
    (project / "agents" / "checker.md").write_text("no front matter")
    with pytest.raises(ConfigError, match=r"agent.yaml:3:10: agents/checker.md does not begin with front matter"):
        agents_of(load_folder(project))
    (project / "skills" / "letters" / "SKILL.md").write_text("no front matter")
    (project / "agent.yaml").write_text(YAML.replace("agents:", "#"))
    with pytest.raises(ConfigError, match=r"agent.yaml:4:10: the skill letters is broken: "):
        played(project, [])
